// The lines of a JPEG, out of libjpeg.
#ifndef PICTOR_JPEG_H
#define PICTOR_JPEG_H

#include <stdint.h>
#include <vips/vips.h>

typedef struct pictor_jpeg pictor_jpeg;

// pictor_jpeg_open is a reader of the JPEG, to be closed. scratch is an empty
// file for what a JPEG of several passes needs besides its pixels, or -1. The
// watcher is told of the work before the first line, up to pictor_jpeg_share
// percent, and can stop it.
pictor_jpeg *pictor_jpeg_open(const void *data, size_t size, int scratch, uintptr_t watcher);
int pictor_jpeg_share(pictor_jpeg *reader);
void pictor_jpeg_close(pictor_jpeg *reader);

// pictor_jpeg_lines is an image that reads its lines from the reader, each once
// and in their order. It has the size and the metadata of head.
VipsImage *pictor_jpeg_lines(pictor_jpeg *reader, VipsImage *head);

// pictor_jpeg_out_of_space says that the reader failed because of scratch.
int pictor_jpeg_out_of_space(const pictor_jpeg *reader);

#endif
