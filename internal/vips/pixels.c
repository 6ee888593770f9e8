#include "pixels.h"

#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// The classes of loader that bytes from outside may reach. Raw is never found
// by looking at bytes: it serves only the encoders, which name it.
static const char *const allowed[] = {
	"VipsForeignLoadJpeg", "VipsForeignLoadPng", "VipsForeignLoadWebp", "VipsForeignLoadRaw",
};

// The warnings that libvips logged in this thread. Its error buffer is one for
// all threads and cannot tell whose picture was odd.
static _Thread_local int warnings;

// count_warning keeps libvips off stderr: one truncated PNG has hundreds of
// warnings.
static void
count_warning(const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer data)
{
	if (level & G_LOG_LEVEL_WARNING)
		warnings++;
}

int
pictor_start(int threads, int arenas)
{
#ifdef __GLIBC__
	// Each thread that mallocs would else get an arena that keeps what a
	// picture needed: 360 MB after 500 mixed pictures instead of 130 MB.
	mallopt(M_ARENA_MAX, arenas);
#endif
	if (VIPS_INIT("pictor"))
		return -1;

	// Buffers never repeat, so the cache would only hold memory.
	vips_cache_set_max(0);
	vips_cache_set_max_mem(0);
	vips_cache_set_max_files(0);
	vips_concurrency_set(threads);

	vips_operation_block_set("VipsForeignLoad", TRUE);
	for (size_t i = 0; i < G_N_ELEMENTS(allowed); i++)
		vips_operation_block_set(allowed[i], FALSE);

	g_log_set_handler("VIPS", G_LOG_LEVEL_WARNING | G_LOG_LEVEL_INFO | G_LOG_LEVEL_DEBUG, count_warning, NULL);
	return 0;
}

static VipsImage *
open_image(const void *data, size_t size, int type)
{
	VipsImage *image = NULL;
	void *bytes = (void *) data;

	switch (type) {
	case PICTOR_JPEG:
		vips_jpegload_buffer(bytes, size, &image,
			"access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_TRUNCATED, NULL);
		break;
	case PICTOR_PNG:
		vips_pngload_buffer(bytes, size, &image,
			"access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_TRUNCATED, NULL);
		break;
	case PICTOR_WEBP:
		vips_webpload_buffer(bytes, size, &image,
			"access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_TRUNCATED, NULL);
		break;
	}
	return image;
}

// finish gives back what libvips keeps for the calling thread: Go moves calls
// between threads, and each of them would keep its own.
static void
finish(void)
{
	vips_thread_shutdown();
}

static int
is_grey(VipsImage *image)
{
	return image->Bands < 3;
}

static int
is_cmyk(VipsImage *image)
{
	return image->Type == VIPS_INTERPRETATION_CMYK;
}

static int
decoded_bands(VipsImage *image)
{
	return is_cmyk(image) ? 3 : image->Bands;
}

int
pictor_read_header(const void *data, size_t size, int type, pictor_header *header)
{
	VipsImage *image = open_image(data, size, type);
	const void *profile;
	int result = -1;

	memset(header, 0, sizeof *header);
	if (image) {
		header->width = image->Xsize;
		header->height = image->Ysize;
		header->bands = decoded_bands(image);
		header->orientation = vips_image_get_orientation(image);
		header->frames = vips_image_get_n_pages(image);
		if (vips_image_get_typeof(image, "interlaced"))
			vips_image_get_int(image, "interlaced", &header->interlaced);
		else if (vips_image_get_typeof(image, "jpeg-multiscan"))
			vips_image_get_int(image, "jpeg-multiscan", &header->interlaced);
		if (vips_image_get_typeof(image, VIPS_META_ICC_NAME) &&
			!vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &header->profile_size))
			header->profile = g_memdup2(profile, header->profile_size);
		result = 0;
		g_object_unref(image);
	}
	finish();
	return result;
}

// profile_fits says whether the picture carries an ICC profile for its own
// kind of pixels. An RGB profile in a grey picture is common and means nothing.
static int
profile_fits(VipsImage *image)
{
	const void *profile;
	size_t size;
	const char *space = is_cmyk(image) ? "CMYK" : is_grey(image) ? "GRAY" : "RGB ";

	return vips_image_get_typeof(image, VIPS_META_ICC_NAME) &&
		!vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &size) &&
		size >= 128 && memcmp((const char *) profile + 16, space, 4) == 0;
}

// apply_profile makes sRGB with the picture's own profile, or with libvips's
// CMYK one where a CMYK picture has none that can be used. Black ink comes out
// as the dark grey that it is on paper, as in browsers: compensating for that
// darkens pictures whose maker did not.
static int
apply_profile(VipsImage *image, VipsImage **out, int intent)
{
	// 16-bit alpha survives the transform only at its own depth.
	int depth = image->BandFmt == VIPS_FORMAT_USHORT ? 16 : 8;

	if (is_cmyk(image))
		return vips_icc_transform(image, out, "srgb", "embedded", TRUE, "input_profile", "cmyk",
			"intent", intent, "depth", depth, NULL);
	return vips_icc_transform(image, out, "srgb", "embedded", TRUE,
		"intent", intent, "depth", depth, NULL);
}

// keeps_colours says whether the profile of an RGB picture is sRGB under any
// name: whether it moves no colour of a 9 x 9 x 9 lattice by more than a level.
// Most photographs carry such a profile; leaving them alone keeps their pixels
// exact and saves the most expensive step of the pipeline.
static int
keeps_colours(VipsImage *image, int intent)
{
	enum { SIDE = 9, COUNT = SIDE * SIDE * SIDE };
	unsigned char lattice[3 * COUNT];
	const void *profile;
	size_t size;
	VipsImage *plain = NULL, *tagged = NULL, *moved = NULL;
	unsigned char *result = NULL;
	int same = 0;

	for (int i = 0; i < COUNT; i++) {
		lattice[3 * i] = VIPS_MIN(255, i % SIDE * 32);
		lattice[3 * i + 1] = VIPS_MIN(255, i / SIDE % SIDE * 32);
		lattice[3 * i + 2] = VIPS_MIN(255, i / SIDE / SIDE * 32);
	}
	plain = vips_image_new_from_memory(lattice, sizeof lattice, COUNT, 1, 3, VIPS_FORMAT_UCHAR);
	if (plain && !vips_copy(plain, &tagged, "interpretation", VIPS_INTERPRETATION_sRGB, NULL) &&
		!vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &size)) {
		vips_image_set_blob_copy(tagged, VIPS_META_ICC_NAME, profile, size);
		if (!apply_profile(tagged, &moved, intent) && (result = vips_image_write_to_memory(moved, &size))) {
			same = size == sizeof lattice;
			for (size_t i = 0; same && i < size; i++)
				same = abs(result[i] - lattice[i]) <= 1;
		}
	}
	g_free(result);
	VIPS_UNREF(moved);
	VIPS_UNREF(tagged);
	VIPS_UNREF(plain);
	return same;
}

// to_grey makes 1 band, or 2 with alpha, of the 3 or 4 that a grey profile gave.
static int
to_grey(VipsImage *image, VipsImage **out)
{
	VipsImage *value = NULL, *alpha = NULL;
	int result = -1;

	if (image->Bands == 3)
		return vips_extract_band(image, out, 1, NULL);
	if (!vips_extract_band(image, &value, 1, NULL) && !vips_extract_band(image, &alpha, 3, NULL))
		result = vips_bandjoin2(value, alpha, out, NULL);
	VIPS_UNREF(alpha);
	VIPS_UNREF(value);
	return result;
}

// replace puts next where image was.
static void
replace(VipsImage **image, VipsImage *next)
{
	g_object_unref(*image);
	*image = next;
}

// to_srgb makes sRGB, or grey, of 8 or 16 bits of what a loader gave.
static int
to_srgb(VipsImage **image, int intent)
{
	int grey = is_grey(*image);
	VipsImage *next;

	if (is_cmyk(*image)) {
		if (apply_profile(*image, &next, intent))
			return -1;
		replace(image, next);
	}
	// What lcms can make nothing of counts as no profile, as in every browser.
	else if (profile_fits(*image) && (grey || !keeps_colours(*image, intent)) && !apply_profile(*image, &next, intent)) {
		replace(image, next);
		if (grey) {
			if (to_grey(*image, &next))
				return -1;
			replace(image, next);
		}
	}
	return 0;
}

// Where a stored pixel goes in the upright picture: origin + x*dx + y*dy, all
// in bytes.
typedef struct {
	ptrdiff_t origin, dx, dy;
} layout;

static layout
upright(int orientation, ptrdiff_t width, ptrdiff_t height, ptrdiff_t bands)
{
	// Turned by a quarter, a row of the upright picture is as long as the
	// stored picture is high.
	ptrdiff_t row = bands * (orientation < 5 ? width : height);
	ptrdiff_t right = (width - 1), bottom = (height - 1);

	switch (orientation) {
	case 2: return (layout){ right * bands, -bands, row };
	case 3: return (layout){ right * bands + bottom * row, -bands, -row };
	case 4: return (layout){ bottom * row, bands, -row };
	case 5: return (layout){ 0, row, bands };
	case 6: return (layout){ bottom * bands, row, -bands };
	case 7: return (layout){ bottom * bands + right * row, -row, -bands };
	case 8: return (layout){ right * row, -row, bands };
	default: return (layout){ 0, bands, row };
	}
}

static void
place(VipsRegion *strip, int top, int lines, layout to, unsigned char *pixels, int width, int bands)
{
	if (strip->im->BandFmt == VIPS_FORMAT_USHORT) {
		for (int y = top; y < top + lines; y++) {
			const unsigned short *from = (const unsigned short *) VIPS_REGION_ADDR(strip, 0, y);

			for (int x = 0; x < width; x++)
				for (int band = 0; band < bands; band++)
					// 65535 is 255: the nearest level, in integers.
					pixels[to.origin + x * to.dx + y * to.dy + band] = (*from++ * 255u + 32895) >> 16;
		}
		return;
	}
	if (to.dx == bands) {
		for (int y = top; y < top + lines; y++)
			memcpy(pixels + to.origin + y * to.dy, VIPS_REGION_ADDR(strip, 0, y), (size_t) width * bands);
		return;
	}
	for (int x = 0; x < width; x++)
		for (int y = top; y < top + lines; y++) {
			const unsigned char *from = VIPS_REGION_ADDR(strip, x, y);

			for (int band = 0; band < bands; band++)
				pixels[to.origin + x * to.dx + y * to.dy + band] = from[band];
		}
}

int
pictor_decode(const void *data, size_t size, int type, int orientation, int intent,
	unsigned char *pixels, int width, int height, int bands, int *warned)
{
	// The loaders decode 8 or 16 lines at a time, and 16 lines of the widest
	// picture still fit a processor's cache. Strips asked for in order need no
	// second frame, not even to turn the picture.
	enum { LINES = 16 };
	layout to = upright(orientation, width, height, bands);
	VipsImage *image = open_image(data, size, type);
	VipsRegion *strip = NULL;
	int result = -1;

	if (!image || to_srgb(&image, intent))
		goto done;
	if (image->Xsize != width || image->Ysize != height || image->Bands != bands ||
		(image->BandFmt != VIPS_FORMAT_UCHAR && image->BandFmt != VIPS_FORMAT_USHORT)) {
		vips_error("pictor", "%d x %d x %d pixels, not %d x %d x %d as the header says",
			image->Xsize, image->Ysize, image->Bands, width, height, bands);
		goto done;
	}
	if (!(strip = vips_region_new(image)))
		goto done;
	for (int y = 0; y < height; y += LINES) {
		VipsRect lines = { 0, y, width, VIPS_MIN(LINES, height - y) };

		if (vips_region_prepare(strip, &lines))
			goto done;
		place(strip, y, lines.height, to, pixels, width, bands);
	}
	result = 0;

done:
	VIPS_UNREF(strip);
	warnings = 0;
	VIPS_UNREF(image); // logs how many warnings libjpeg gave, if any
	*warned = warnings > 0;
	finish();
	return result;
}

static VipsImage *
open_raw(const char *path, int width, int height, int bands)
{
	VipsImage *raw = NULL, *image = NULL;

	if (vips_rawload(path, &raw, width, height, bands, "access", VIPS_ACCESS_SEQUENTIAL, NULL))
		return NULL;
	if (vips_copy(raw, &image, "interpretation", bands < 3 ? VIPS_INTERPRETATION_B_W : VIPS_INTERPRETATION_sRGB, NULL))
		image = NULL;
	g_object_unref(raw);
	return image;
}

int
pictor_encode_jpeg(const char *raw, int width, int height, int bands, const char *out, int quality)
{
	// Better Huffman tables need every coefficient in memory, 6 bytes a pixel:
	// worth it only while that is small.
	gboolean optimize = (gint64) width * height <= 8 * 1000 * 1000;
	VipsImage *image = open_raw(raw, width, height, bands);
	int result = -1;

	if (image)
		result = vips_jpegsave(image, out, "Q", quality, "optimize_coding", optimize, "interlace", FALSE,
			"subsample_mode", VIPS_FOREIGN_SUBSAMPLE_OFF, "strip", TRUE, NULL);
	VIPS_UNREF(image);
	finish();
	return result;
}

int
pictor_encode_webp(const char *raw, int width, int height, int bands, const char *out, int quality, int lossless, int effort)
{
	VipsImage *image = open_raw(raw, width, height, bands);
	int result = -1;

	if (image)
		result = vips_webpsave(image, out, "Q", quality, "lossless", lossless, "effort", effort,
			"alpha_q", 100, "strip", TRUE, NULL);
	VIPS_UNREF(image);
	finish();
	return result;
}
