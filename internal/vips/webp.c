#include "pixels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <webp/decode.h>
#include <webp/encode.h>

// libwebp is called here and not through libvips, which neither shows how far
// it is nor can stop it: 100 megapixels take it half a minute to encode. To
// decode them, libvips holds a frame of its own besides the one that is wanted.

int
pictor_webp_is_animation(const void *data, size_t size)
{
	WebPBitstreamFeatures features;

	return WebPGetFeatures(data, size, &features) == VP8_STATUS_OK && features.has_animation;
}

int
pictor_webp_decode(const void *data, size_t size, unsigned char *pixels, int width, int height, int bands, uintptr_t watcher)
{
	enum { PIECE = 64 * 1024 };
	WebPDecoderConfig config;
	WebPIDecoder *decoder;
	VP8StatusCode status = VP8_STATUS_SUSPENDED;

	if (!WebPInitDecoderConfig(&config))
		return -1;
	config.output.colorspace = bands == 4 ? MODE_RGBA : MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA.rgba = pixels;
	config.output.u.RGBA.stride = width * bands;
	config.output.u.RGBA.size = (size_t) width * height * bands;
	if (!(decoder = WebPIDecode(NULL, 0, &config)))
		return -1;
	for (size_t n = 0; n < size && status == VP8_STATUS_SUSPENDED;) {
		if (pictorWatched(watcher, (int) ((gint64) n * PICTOR_WEBP_SHARE / size)))
			break;
		n += VIPS_MIN(PIECE, size - n);
		status = WebPIUpdate(decoder, data, n);
	}
	if (status != VP8_STATUS_OK)
		vips_error("pictor", "libwebp's status %d", status);
	WebPIDelete(decoder);
	return status == VP8_STATUS_OK ? 0 : -1;
}

static int
copy_lines(VipsRegion *to, void *seq, void *a, void *b, gboolean *stop)
{
	const unsigned char *pixels = a;
	VipsRect *lines = &to->valid;
	size_t pixel = VIPS_IMAGE_SIZEOF_PEL(to->im), row = VIPS_IMAGE_SIZEOF_LINE(to->im);

	for (int y = lines->top; y < VIPS_RECT_BOTTOM(lines); y++)
		memcpy(VIPS_REGION_ADDR(to, lines->left, y), pixels + y * row + lines->left * pixel, lines->width * pixel);
	return 0;
}

VipsImage *
pictor_webp_lines(unsigned char *pixels, VipsImage *head)
{
	VipsImage *image = vips_image_new();

	if (vips_image_pipelinev(image, VIPS_DEMAND_STYLE_THINSTRIP, head, NULL) ||
		vips_image_generate(image, NULL, copy_lines, NULL, pixels, NULL)) {
		g_object_unref(image);
		return NULL;
	}
	return image;
}

typedef struct {
	int file;
	uintptr_t watcher;
} target;

static int
write_all(const uint8_t *data, size_t size, const WebPPicture *picture)
{
	const target *to = picture->custom_ptr;

	while (size > 0) {
		ssize_t n = write(to->file, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		data += n;
		size -= n;
	}
	return 1;
}

static int
go_on(int percent, const WebPPicture *picture)
{
	const target *to = picture->custom_ptr;

	return !pictorWatched(to->watcher, percent);
}

// in_colour repeats the grey of pixels that have no colour, which libwebp does
// not take.
static uint8_t *
in_colour(const uint8_t *grey, size_t pixels, int bands)
{
	uint8_t *colour = malloc(pixels * (bands + 2)), *to = colour;

	for (size_t i = 0; colour && i < pixels; i++, grey += bands) {
		*to++ = grey[0];
		*to++ = grey[0];
		*to++ = grey[0];
		if (bands == 2)
			*to++ = grey[1];
	}
	return colour;
}

int
pictor_encode_webp(const void *pixels, int width, int height, int bands, int file, int quality, int lossless, int effort,
	uintptr_t watcher)
{
	target to = { file, watcher };
	const uint8_t *from = pixels;
	uint8_t *colour = NULL;
	WebPConfig config;
	WebPPicture picture;
	int error;

	if (!WebPConfigInit(&config) || !WebPPictureInit(&picture))
		return VP8_ENC_ERROR_INVALID_CONFIGURATION;
	config.quality = quality;
	config.lossless = lossless;
	config.method = effort;
	picture.width = width;
	picture.height = height;
	picture.use_argb = lossless;
	picture.writer = write_all;
	picture.progress_hook = go_on;
	picture.custom_ptr = &to;
	if (bands < 3)
		from = colour = in_colour(from, (size_t) width * height, bands);

	error = VP8_ENC_ERROR_OUT_OF_MEMORY;
	if (from) {
		int imported = bands == 2 || bands == 4
			? WebPPictureImportRGBA(&picture, from, 4 * width)
			: WebPPictureImportRGB(&picture, from, 3 * width);

		free(colour);
		error = VP8_ENC_OK;
		if (!imported || !WebPEncode(&config, &picture))
			error = picture.error_code != VP8_ENC_OK ? picture.error_code : VP8_ENC_ERROR_BAD_DIMENSION;
	}
	WebPPictureFree(&picture);
	return error;
}
