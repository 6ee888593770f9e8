// The C half of package vips: whole pipelines, each in one call, so that
// libvips never reads a Go slice after the call that lent it has returned.
#ifndef PICTOR_PIXELS_H
#define PICTOR_PIXELS_H

#include <stddef.h>
#include <stdint.h>
#include <vips/vips.h>

#include "colour.h"
#include "jpeg.h"

#if VIPS_MAJOR_VERSION < 8 || (VIPS_MAJOR_VERSION == 8 && VIPS_MINOR_VERSION < 13)
#error "Pictor needs libvips 8.13 or newer: older ones cannot refuse the loaders that Pictor does not want"
#endif

enum { PICTOR_JPEG = 1, PICTOR_PNG, PICTOR_WEBP };

typedef struct {
	int width, height; // as stored, before the orientation
	int bands;         // of the decoded picture: 1 to 4
	int orientation;   // 1 to 8, 1 when there is none that makes sense
	int frames;
	int interlaced;    // several passes over the whole frame
	void *profile;     // a copy of the ICC profile, or NULL; g_free it
	size_t profile_size;
} pictor_header;

int pictor_start(int threads, int arenas);
int pictor_read_header(const void *data, size_t size, int type, pictor_header *header);

// A pictor_layout says where a stored pixel goes: to origin + x*dx + y*dy, all
// in bytes.
typedef struct {
	ptrdiff_t origin, dx, dy;
} pictor_layout;

// Decoders and encoders call pictorWatched, which is Go, with watcher and how
// many percent are done, and fail soon after it returned anything but 0.
extern int pictorWatched(uintptr_t watcher, int percent);

enum { PICTOR_DECODED, PICTOR_BAD, PICTOR_OUT_OF_SPACE };

// pictor_decode puts width * height pixels of as many bands, sizes as stored,
// where the layout says. scratch is that of pictor_jpeg_open.
int pictor_decode(const void *data, size_t size, int type, int intent, const pictor_light *light,
	unsigned char *pixels, pictor_layout to, int width, int height, int bands, int scratch, uintptr_t watcher);

int pictor_webp_is_animation(const void *data, size_t size);

// pictor_webp_decode fills pixels, which has room for exactly width * height *
// bands, and has the watcher told of up to PICTOR_WEBP_SHARE percent.
enum { PICTOR_WEBP_SHARE = 90 };
int pictor_webp_decode(const void *data, size_t size, unsigned char *pixels, int width, int height, int bands, uintptr_t watcher);

// pictor_webp_lines is an image of the pixels, which must outlive it. It has the
// size and the metadata of head.
VipsImage *pictor_webp_lines(unsigned char *pixels, VipsImage *head);

// pictor_encode_jpeg reads a file of pixels, row after row, by its descriptor.
int pictor_encode_jpeg(int pixels, int width, int height, int bands, const char *out, int quality, uintptr_t watcher);

// pictor_encode_webp returns 0 or libwebp's number for what went wrong.
int pictor_encode_webp(const void *pixels, int width, int height, int bands, int file, int quality, int lossless, int effort,
	uintptr_t watcher);

#endif
