#include "pixels.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <webp/encode.h>

// libwebp is called here and not through libvips, which neither shows how far
// it is nor can stop it: 100 megapixels take it half a minute.

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

	return !pictorEncoded(to->watcher, percent);
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
