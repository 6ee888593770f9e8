// Colour profiles to sRGB.
#ifndef PICTOR_COLOUR_H
#define PICTOR_COLOUR_H

#include <vips/vips.h>

enum { PICTOR_FULL_LIGHT = 1 << 20, PICTOR_LEVEL_SHIFT = 6 };

// A pictor_light says how much linear red, green and blue of sRGB each of the
// 256 values of the three samples of a pixel adds: all that a matrix profile
// is. The fourth is padding.
typedef struct {
	int adds[3][256][4];
} pictor_light;

// A pictor_shift turns 8-bit RGB into sRGB.
typedef struct {
	const pictor_light *light;
	unsigned char level[PICTOR_FULL_LIGHT >> PICTOR_LEVEL_SHIFT]; // of each amount of light
} pictor_shift;

// pictor_to_srgb makes sRGB or grey, of 8 or 16 bits, of what a loader gave. It
// puts the result in place of *image. Where *shift is set, the caller has to
// send each row through pictor_shift_row, and then to g_free it. light is that
// of the picture's profile, or NULL.
int pictor_to_srgb(VipsImage **image, int intent, const pictor_light *light, pictor_shift **shift);

void pictor_shift_row(const pictor_shift *shift, const unsigned char *from, unsigned char *to, int width, int bands);

int pictor_is_grey(VipsImage *image);
int pictor_is_cmyk(VipsImage *image);

#endif
