package models

import "pictor/internal/job"

// normalisation is what is done to pixels in 0..1.
type normalisation struct{ mean, std [3]float32 }

// foreign lists the models of others that may be pulled. Those under
// non-commercial terms, or under none that are stated, are left out.
//
// Pixels are prepared as the models' authors do it. rembg differs: it divides
// by the brightest value for all of them, and squashes for isnet-anime, which
// was trained on letterboxed pictures without a mean. The runner published
// beside BEN2_Base.onnx subtracts no mean either, unlike BEN2's Python code.
//
// Margins: realesr-general-x4v3 has 34 convolutions of 3 x 3, so 34 pixels are
// exact. The others see farther than any margin that can be afforded; with 64
// pixels their exporter measured seams of at most 3/255.
func foreign() []Description {
	const (
		rembg     = "https://github.com/danielgatis/rembg/releases/download/v0.0.0/"
		omadesign = "https://github.com/michaelmonetized/omadesign/releases/download/upscale-models-v1/"

		esrgan = "xinntao/Real-ESRGAN, exported by omadesign"
		apache = "Apache-2.0"
		mit    = "MIT"
		bsd    = "BSD-3-Clause"

		many = "several public projects pin it; the MD5 is rembg's own"
		held = many + "; a copy of the file has both, and was run"
		some = "several public projects pin it"
		one  = "the exporter's manifest alone"
	)
	var (
		plain    = normalisation{std: [3]float32{1, 1, 1}}
		imageNet = normalisation{mean: [3]float32{.485, .456, .406}, std: [3]float32{.229, .224, .225}}
	)
	return []Description{
		{
			Name: "u2net", Task: job.RemoveBG, File: "u2net.onnx",
			Side: 320, Brightest: true, Mean: imageNet.mean, Std: imageNet.std, Stretch: true, Coarse: true, Scale: 1,
			Origin: "xuebinqin/U-2-Net, exported by rembg", Licence: apache,
			URL: rembg + "u2net.onnx", Size: 175_997_641,
			SHA256:  "8d10d2f3bb75ae3b6d527c77944fc5e7dcd94b29809d47a739a7a728a912b491",
			MD5:     "60024c5c889badc19c04ad937298a77b",
			Witness: held,
		},
		{
			Name: "u2netp", Task: job.RemoveBG, File: "u2netp.onnx",
			Side: 320, Brightest: true, Mean: imageNet.mean, Std: imageNet.std, Stretch: true, Coarse: true, Scale: 1,
			Origin: "xuebinqin/U-2-Net, exported by rembg", Licence: apache,
			URL: rembg + "u2netp.onnx", Size: 4_574_861,
			SHA256:  "309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8",
			MD5:     "8e83ca70e441ab06c318d82300c84806",
			Witness: many,
		},
		{
			Name: "u2net_human_seg", Task: job.RemoveBG, File: "u2net_human_seg.onnx",
			Side: 320, Brightest: true, Mean: imageNet.mean, Std: imageNet.std, Stretch: true, Coarse: true, Scale: 1,
			Origin: "xuebinqin/U-2-Net, exported by rembg", Licence: apache,
			URL: rembg + "u2net_human_seg.onnx", Size: 175_997_641,
			SHA256:  "01eb6a29a5c4d8edb30b56adad9bb3a2a0535338e480724a213e0acfd2d1c73c",
			MD5:     "c09ddc2e0104f800e3e1bb4652583d1f",
			Witness: many,
		},
		{
			Name: "isnet-general-use", Task: job.RemoveBG, File: "isnet-general-use.onnx",
			Side: 1024, Mean: [3]float32{.5, .5, .5}, Std: plain.std, Stretch: true, Scale: 1,
			Origin: "xuebinqin/DIS, exported by rembg", Licence: apache,
			URL: rembg + "isnet-general-use.onnx", Size: 178_648_008,
			SHA256:  "60920e99c45464f2ba57bee2ad08c919a52bbf852739e96947fbb4358c0d964a",
			MD5:     "fc16ebd8b0c10d971d3513d564d01e29",
			Witness: many,
		},
		{
			Name: "isnet-anime", Task: job.RemoveBG, File: "isnet-anime.onnx",
			Side: 1024, Letterbox: true, Mean: plain.mean, Std: plain.std, Scale: 1,
			Origin: "SkyTNT/anime-segmentation", Licence: apache,
			URL: rembg + "isnet-anime.onnx", Size: 176_069_933,
			SHA256:  "f15622d853e8260172812b657053460e20806f04b9e05147d49af7bed31a6e99",
			MD5:     "6f184e756bb3bd901c8849220a83e38e",
			Witness: many,
		},
		{
			Name: "birefnet-general", Task: job.RemoveBG, File: "birefnet-general.onnx",
			Side: 1024, Mean: imageNet.mean, Std: imageNet.std, Sigmoid: true, Stretch: true, Scale: 1, RuntimeOnly: true, Alone: true,
			Origin: "ZhengPeng7/BiRefNet, exported by rembg", Licence: mit,
			URL: rembg + "BiRefNet-general-epoch_244.onnx", Size: 972_666_916,
			SHA256:  "58f621f00f5d756097615970a88a791584600dcf7c45b18a0a6267535a1ebd3c",
			MD5:     "7a35a0141cbbc80de11d9c9a28f52697",
			Witness: many,
		},
		{
			Name: "birefnet-general-lite", Task: job.RemoveBG, File: "birefnet-general-lite.onnx",
			Side: 1024, Mean: imageNet.mean, Std: imageNet.std, Sigmoid: true, Stretch: true, Scale: 1, RuntimeOnly: true, Alone: true,
			Origin: "ZhengPeng7/BiRefNet, exported by rembg", Licence: mit,
			URL: rembg + "BiRefNet-general-bb_swin_v1_tiny-epoch_232.onnx", Size: 224_005_088,
			SHA256:  "5600024376f572a557870a5eb0afb1e5961636bef4e1e22132025467d0f03333",
			MD5:     "4fab47adc4ff364be1713e97b7e66334",
			Witness: many,
		},
		{
			Name: "birefnet-portrait", Task: job.RemoveBG, File: "birefnet-portrait.onnx",
			Side: 1024, Mean: imageNet.mean, Std: imageNet.std, Sigmoid: true, Stretch: true, Scale: 1, RuntimeOnly: true, Alone: true,
			Origin: "ZhengPeng7/BiRefNet, exported by rembg", Licence: mit,
			URL: rembg + "BiRefNet-portrait-epoch_150.onnx", Size: 972_666_916,
			SHA256:  "1ba1c8ff5a7bbfadc8d8d13fb11d7be793f91f23d9d466549e37a854f6668f99",
			MD5:     "c3a64a6abf20250d090cd055f12a3b67",
			Witness: many,
		},
		{
			Name: "BEN2", Task: job.RemoveBG, File: "BEN2.onnx",
			Side: 1024, Mean: plain.mean, Std: plain.std, Stretch: true, Scale: 1, RuntimeOnly: true, Alone: true,
			Origin: "PramaLLC/BEN2", Licence: mit,
			URL: "https://huggingface.co/PramaLLC/BEN2/resolve/main/BEN2_Base.onnx", Size: 222_932_053,
			SHA256:  "22cea62108ff53b7ccc20f7a008bf30494228d84b1687f29ecbe76936a998101",
			Witness: some,
		},
		{
			Name: "RealESRGAN_x2plus", Task: job.Upscale2x, File: "RealESRGAN_x2plus.onnx",
			Mean: plain.mean, Std: plain.std, Scale: 2, Margin: 64, Multiple: 2, Alone: true,
			Origin: esrgan, Licence: bsd,
			URL: omadesign + "RealESRGAN_x2plus.onnx", Size: 67_075_996,
			SHA256:  "ffa94b343026d70312435c5ce846f85ef705a5f1532a33519df32d8e060ccf3a",
			Witness: one,
		},
		{
			Name: "RealESRGAN_x4plus", Task: job.Upscale4x, File: "RealESRGAN_x4plus.onnx",
			Mean: plain.mean, Std: plain.std, Scale: 4, Margin: 64, Alone: true,
			Origin: esrgan, Licence: bsd,
			URL: omadesign + "RealESRGAN_x4plus.onnx", Size: 67_051_641,
			SHA256:  "43c406760a1e6ddb5521a99b2eee6b069a502b9543a2a859857a6ff4ffa76481",
			Witness: one,
		},
		{
			Name: "RealESRGAN_x4plus_anime_6B", Task: job.Upscale4x, File: "RealESRGAN_x4plus_anime_6B.onnx",
			Mean: plain.mean, Std: plain.std, Scale: 4, Margin: 64, Alone: true,
			Origin: esrgan, Licence: bsd,
			URL: omadesign + "RealESRGAN_x4plus_anime_6B.onnx", Size: 17_939_966,
			SHA256:  "719628b3df414426684930099720b8b37853f13b3b6a37f3adf94485dc7b25d1",
			Witness: one,
		},
		{
			Name: "realesr-general-x4v3", Task: job.Upscale4x, File: "realesr-general-x4v3.onnx",
			Mean: plain.mean, Std: plain.std, Scale: 4, Margin: 34,
			Origin: esrgan, Licence: bsd,
			URL: omadesign + "realesr-general-x4v3.onnx", Size: 4_866_419,
			SHA256:  "74b0bf4bdad2868e256ef722980586b7ff1a8b2c9ba0b8e526498cd28acf5b80",
			Witness: one,
		},
	}
}
