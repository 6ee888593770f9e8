#include "pixels.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// The classes of loader that bytes may reach.
static const char *const allowed[] = { "VipsForeignLoadJpeg", "VipsForeignLoadPng", "VipsForeignLoadWebp" };

// drop_message keeps libvips off stderr: one truncated PNG has hundreds of
// warnings.
static void
drop_message(const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer data)
{
}

int
pictor_start(int threads, int arenas)
{
#ifdef __GLIBC__
	// Each thread that mallocs would else get an arena that keeps what a
	// picture needed: 360 MB after 500 mixed pictures instead of 130 MB.
	mallopt(M_ARENA_MAX, arenas);
	// Large blocks go back to the system when they are freed. By default the
	// limit grows with the blocks that were freed, and the pools keep them: 14 MB
	// of what it took to load the models.
	mallopt(M_MMAP_THRESHOLD, 256 * 1024);
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

	g_log_set_handler("VIPS", G_LOG_LEVEL_WARNING | G_LOG_LEVEL_INFO | G_LOG_LEVEL_DEBUG, drop_message, NULL);
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
decoded_bands(VipsImage *image)
{
	return pictor_is_cmyk(image) ? 3 : image->Bands;
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
		header->frames = 1;
		// Not vips_image_get_n_pages, which counts 10000 frames and more as one.
		if (vips_image_get_typeof(image, VIPS_META_N_PAGES))
			vips_image_get_int(image, VIPS_META_N_PAGES, &header->frames);
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

// narrow makes 8-bit sRGB of the rows of a strip, in out, unless they are that.
// It returns where the rows are, and how many bytes apart.
static const unsigned char *
narrow(VipsRegion *strip, const pictor_shift *shift, unsigned char *out, size_t *stride)
{
	int samples = strip->valid.width * strip->im->Bands;

	*stride = VIPS_REGION_LSKIP(strip);
	if (strip->im->BandFmt != VIPS_FORMAT_USHORT && !shift)
		return VIPS_REGION_ADDR(strip, 0, strip->valid.top);
	*stride = samples;
	for (int y = 0; y < strip->valid.height; y++) {
		const unsigned char *from = VIPS_REGION_ADDR(strip, 0, strip->valid.top + y);
		const unsigned short *wide = (const unsigned short *) from;
		unsigned char *row = out + (size_t) y * samples;

		if (shift)
			pictor_shift_row(shift, from, row, strip->valid.width, strip->im->Bands);
		else
			for (int i = 0; i < samples; i++)
				row[i] = (wide[i] * 255u + 32895) >> 16; // 65535 is 255: the nearest level, in integers
	}
	return out;
}

// place puts lines, of which the first is line top of the stored picture, where
// they belong in the upright one.
static void
place(const unsigned char *from, size_t stride, int top, int lines, pictor_layout to, unsigned char *pixels, int width, int bands)
{
	pixels += to.origin + top * to.dy;
	if (to.dx == bands) {
		for (int y = 0; y < lines; y++)
			memcpy(pixels + y * to.dy, from + y * stride, (size_t) width * bands);
		return;
	}
	// Down the columns, so that a turned picture is written in runs of as many
	// pixels as there are lines: across them, each pixel would miss the cache.
	for (int x = 0; x < width; x++)
		for (int y = 0; y < lines; y++) {
			const unsigned char *pixel = from + y * stride + (size_t) x * bands;
			unsigned char *into = pixels + x * to.dx + y * to.dy;

			for (int band = 0; band < bands; band++)
				into[band] = pixel[band];
		}
}

int
pictor_decode(const void *data, size_t size, int type, int intent, const pictor_light *light,
	unsigned char *pixels, pictor_layout to, int width, int height, int bands, int scratch, uintptr_t watcher)
{
	// The loaders decode 8 or 16 lines at a time, and 16 lines of the widest
	// picture still fit a processor's cache. Strips asked for in order need no
	// second frame, not even to turn the picture.
	enum { LINES = 16 };
	VipsImage *head = open_image(data, size, type), *image = head;
	pictor_jpeg *reader = NULL;
	VipsRegion *strip = NULL;
	pictor_shift *shift = NULL;
	unsigned char *rows = NULL, *whole = NULL;
	int result = PICTOR_BAD, before = 0; // percent of the work before the first line

	if (head && type == PICTOR_JPEG) {
		image = (reader = pictor_jpeg_open(data, size, scratch, watcher)) ? pictor_jpeg_lines(reader, head) : NULL;
		before = reader ? pictor_jpeg_share(reader) : 0;
		g_object_unref(head);
	}
	else if (head && type == PICTOR_WEBP && !pictor_webp_is_animation(data, size)) {
		// Where nothing is turned, colours are converted in place.
		int turned = to.dx != bands || to.dy != (ptrdiff_t) width * bands;
		unsigned char *frame = turned ? (whole = g_try_malloc((size_t) width * height * bands)) : pixels;

		image = frame && head->Xsize == width && head->Ysize == height && head->Bands == bands &&
			!pictor_webp_decode(data, size, frame, width, height, bands, watcher) ? pictor_webp_lines(frame, head) : NULL;
		before = PICTOR_WEBP_SHARE;
		g_object_unref(head);
	}
	if (!image || pictor_to_srgb(&image, intent, light, &shift))
		goto done;
	if (image->Xsize != width || image->Ysize != height || image->Bands != bands ||
		(image->BandFmt != VIPS_FORMAT_UCHAR && image->BandFmt != VIPS_FORMAT_USHORT)) {
		vips_error("pictor", "%d x %d x %d pixels, not %d x %d x %d as the header says",
			image->Xsize, image->Ysize, image->Bands, width, height, bands);
		goto done;
	}
	if (!(strip = vips_region_new(image)))
		goto done;
	rows = g_malloc((size_t) LINES * width * bands);
	for (int y = 0; y < height; y += LINES) {
		VipsRect lines = { 0, y, width, VIPS_MIN(LINES, height - y) };
		const unsigned char *from;
		size_t stride;

		if (pictorWatched(watcher, before + (int) ((gint64) y * (100 - before) / height)) || vips_region_prepare(strip, &lines))
			goto done;
		from = narrow(strip, shift, rows, &stride);
		place(from, stride, y, lines.height, to, pixels, width, bands);
	}
	result = PICTOR_DECODED;

done:
	if (pictor_jpeg_out_of_space(reader))
		result = PICTOR_OUT_OF_SPACE;
	g_free(rows);
	g_free(shift);
	VIPS_UNREF(strip);
	VIPS_UNREF(image);
	pictor_jpeg_close(reader);
	g_free(whole);
	finish();
	return result;
}

// pixel_file is a picture that lies in a file, row after row. The file is read
// and not mapped: what is mapped counts as memory of this process.
typedef struct {
	int file;
	uintptr_t watcher;
} pixel_file;

static int
read_lines(VipsRegion *to, void *seq, void *a, void *b, gboolean *stop)
{
	const pixel_file *from = a;
	VipsRect *lines = &to->valid;
	size_t pixel = VIPS_IMAGE_SIZEOF_PEL(to->im), row = VIPS_IMAGE_SIZEOF_LINE(to->im);

	for (int y = lines->top; y < VIPS_RECT_BOTTOM(lines); y++) {
		VipsPel *line = VIPS_REGION_ADDR(to, lines->left, y);
		off_t at = (off_t) y * row + lines->left * pixel;

		for (size_t left = lines->width * pixel; left > 0;) {
			ssize_t n = pread(from->file, line, left, at);

			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0) {
				vips_error("pictor", "line %d cannot be read", y);
				return -1;
			}
			line += n;
			at += n;
			left -= n;
		}
	}
	if (pictorWatched(from->watcher, (int) ((gint64) VIPS_RECT_BOTTOM(lines) * 100 / to->im->Ysize))) {
		vips_error("pictor", "stopped");
		return -1;
	}
	return 0;
}

int
pictor_encode_jpeg(int pixels, int width, int height, int bands, const char *out, int quality, uintptr_t watcher)
{
	// Better Huffman tables need every coefficient in memory, 6 bytes a pixel:
	// worth it only while that is small.
	gboolean optimize = (gint64) width * height <= 8 * 1000 * 1000;
	pixel_file from = { pixels, watcher };
	VipsImage *image = vips_image_new();
	int result = -1;

	vips_image_init_fields(image, width, height, bands, VIPS_FORMAT_UCHAR, VIPS_CODING_NONE,
		bands < 3 ? VIPS_INTERPRETATION_B_W : VIPS_INTERPRETATION_sRGB, 1, 1);
	if (!vips_image_pipelinev(image, VIPS_DEMAND_STYLE_THINSTRIP, NULL) &&
		!vips_image_generate(image, NULL, read_lines, NULL, &from, NULL))
		result = vips_jpegsave(image, out, "Q", quality, "optimize_coding", optimize, "interlace", FALSE,
			"subsample_mode", VIPS_FOREIGN_SUBSAMPLE_OFF, "strip", TRUE, NULL);
	g_object_unref(image);
	finish();
	return result;
}
