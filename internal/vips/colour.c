#include "colour.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int
pictor_is_grey(VipsImage *image)
{
	return image->Bands < 3;
}

int
pictor_is_cmyk(VipsImage *image)
{
	return image->Type == VIPS_INTERPRETATION_CMYK;
}

// profile_fits says whether the picture carries an ICC profile for its own
// kind of pixels. An RGB profile in a grey picture is common and means nothing.
static int
profile_fits(VipsImage *image)
{
	const void *profile;
	size_t size;
	const char *space = pictor_is_cmyk(image) ? "CMYK" : pictor_is_grey(image) ? "GRAY" : "RGB ";

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

	if (pictor_is_cmyk(image))
		return vips_icc_transform(image, out, "srgb", "embedded", TRUE, "input_profile", "cmyk",
			"intent", intent, "depth", depth, NULL);
	return vips_icc_transform(image, out, "srgb", "embedded", TRUE,
		"intent", intent, "depth", depth, NULL);
}

// SIDE values of each sample, from 0 to 255, make the lattice of colours on
// which profiles are tried.
enum { SIDE = 9, COUNT = SIDE * SIDE * SIDE };

static void
fill_lattice(unsigned char *rgb)
{
	for (int i = 0; i < COUNT; i++) {
		rgb[3 * i] = VIPS_MIN(255, i % SIDE * 32);
		rgb[3 * i + 1] = VIPS_MIN(255, i / SIDE % SIDE * 32);
		rgb[3 * i + 2] = VIPS_MIN(255, i / SIDE / SIDE * 32);
	}
}

// near says whether no sample of two lattices is more than a level apart.
static int
near(const unsigned char *a, const unsigned char *b)
{
	for (int i = 0; i < 3 * COUNT; i++)
		if (abs(a[i] - b[i]) > 1)
			return 0;
	return 1;
}

// lattice_in_srgb is what lcms makes of the lattice in a picture's profile, to
// be g_freed; NULL when lcms makes nothing of it.
static unsigned char *
lattice_in_srgb(unsigned char *lattice, VipsImage *image, int intent)
{
	VipsImage *plain = vips_image_new_from_memory(lattice, 3 * COUNT, COUNT, 1, 3, VIPS_FORMAT_UCHAR);
	VipsImage *tagged = NULL, *moved = NULL;
	unsigned char *result = NULL;
	const void *profile;
	size_t size;

	if (plain && !vips_copy(plain, &tagged, "interpretation", VIPS_INTERPRETATION_sRGB, NULL) &&
		!vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &size)) {
		vips_image_set_blob_copy(tagged, VIPS_META_ICC_NAME, profile, size);
		if (!apply_profile(tagged, &moved, intent) && moved->Bands == 3)
			result = vips_image_write_to_memory(moved, &size);
	}
	VIPS_UNREF(moved);
	VIPS_UNREF(tagged);
	VIPS_UNREF(plain);
	return result;
}

void
pictor_shift_row(const pictor_shift *shift, const unsigned char *from, unsigned char *to, int width, int bands)
{
	for (int x = 0; x < width; x++, from += bands, to += bands) {
		const int *r = shift->light->adds[0][from[0]], *g = shift->light->adds[1][from[1]], *b = shift->light->adds[2][from[2]];

		for (int c = 0; c < 3; c++) {
			int light = r[c] + g[c] + b[c];

			to[c] = shift->level[VIPS_CLIP(0, light, PICTOR_FULL_LIGHT - 1) >> PICTOR_LEVEL_SHIFT];
		}
		if (bands == 4)
			to[3] = from[3];
	}
}

// make_shift is a pictor_shift, or NULL when it would not give the lattice that
// lcms gives: then the profile is more than a matrix. lcms with its floats
// takes longer than decoding the JPEG does.
static pictor_shift *
make_shift(const pictor_light *light, const unsigned char *lattice, const unsigned char *expected)
{
	unsigned char moved[3 * COUNT];
	pictor_shift *shift = g_new(pictor_shift, 1);

	shift->light = light;
	for (int i = 0; i < (int) sizeof shift->level; i++) {
		double amount = (i + 0.5) / sizeof shift->level;
		double value = amount <= 0.0031308 ? 12.92 * amount : 1.055 * pow(amount, 1 / 2.4) - 0.055;

		shift->level[i] = rint(255 * value);
	}
	pictor_shift_row(shift, lattice, moved, COUNT, 3);
	if (near(moved, expected))
		return shift;
	g_free(shift);
	return NULL;
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

// rgb_to_srgb leaves an RGB picture alone when its profile is sRGB under any
// name: when it moves no colour of the lattice by more than a level. Most
// photographs carry such a profile, and their pixels stay exact. A profile that
// lcms can make nothing of counts as none, as in every browser.
static int
rgb_to_srgb(VipsImage **image, int intent, const pictor_light *light, pictor_shift **shift)
{
	unsigned char lattice[3 * COUNT], *moved;
	int result = 0;

	fill_lattice(lattice);
	if (!(moved = lattice_in_srgb(lattice, *image, intent)))
		return 0;
	if (!near(lattice, moved)) {
		VipsImage *next;

		if (light && (*image)->BandFmt == VIPS_FORMAT_UCHAR)
			*shift = make_shift(light, lattice, moved);
		if (!*shift && !(result = apply_profile(*image, &next, intent)))
			replace(image, next);
	}
	g_free(moved);
	return result;
}

int
pictor_to_srgb(VipsImage **image, int intent, const pictor_light *light, pictor_shift **shift)
{
	VipsImage *next;

	if (pictor_is_cmyk(*image)) {
		if (apply_profile(*image, &next, intent))
			return -1;
		replace(image, next);
	}
	else if (profile_fits(*image) && !pictor_is_grey(*image))
		return rgb_to_srgb(image, intent, light, shift);
	else if (profile_fits(*image) && !apply_profile(*image, &next, intent)) {
		replace(image, next);
		if (to_grey(*image, &next))
			return -1;
		replace(image, next);
	}
	return 0;
}
