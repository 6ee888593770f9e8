#include "pixels.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jpeglib.h>
#include <jerror.h>

// libjpeg is called here and not through libvips, which cannot stop it in the
// middle, does not tell which of libjpeg's warnings means that part of the
// picture is made up, and holds all coefficients of a JPEG of several passes in
// memory: 600 MB for 100 megapixels with colour at full resolution.

// A plane is the coefficients of one component: what libjpeg calls a virtual
// array of blocks.
typedef struct {
	JDIMENSION width, height; // blocks
	JBLOCKROW *rows;
	JDIMENSION from;          // the first row that may be in memory
} plane;

struct pictor_jpeg {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	jmp_buf escape;

	uintptr_t watcher;
	int started;
	int next; // line

	int scratch, out_of_space;
	plane planes[MAX_COMPONENTS];
	int count;
	unsigned char *coefficients; // mapped from scratch
	size_t size;                 // of what is mapped
	void (*realize)(j_common_ptr jpeg);
};

static pictor_jpeg *
reader_of(j_common_ptr jpeg)
{
	return jpeg->client_data;
}

static void
give_up(j_common_ptr jpeg)
{
	char text[JMSG_LENGTH_MAX];

	jpeg->err->format_message(jpeg, text);
	vips_error("pictor", "%s", text);
	longjmp(reader_of(jpeg)->escape, 1);
}

// weigh gives up where libjpeg goes on with a picture of which it makes part
// up. Its other warnings are of oddities that do no harm: some telephones leave
// bytes behind the last block.
static void
weigh(j_common_ptr jpeg, int level)
{
	if (level >= 0)
		return;
	switch (jpeg->err->msg_code) {
	case JWRN_HIT_MARKER:
	case JWRN_HUFF_BAD_CODE:
	case JWRN_ARITH_BAD_CODE:
	case JWRN_MUST_RESYNC:
		give_up(jpeg);
	}
}

static void
be_silent(j_common_ptr jpeg)
{
}

static void
nothing(j_decompress_ptr jpeg)
{
}

// at_end ends a JPEG that lacks its end mark, as some programs write it. If more
// than the mark is missing, libjpeg warns. Of several passes, whole ones may be
// missing, of which it knows nothing.
static boolean
at_end(j_decompress_ptr jpeg)
{
	static const JOCTET mark[] = { 0xff, JPEG_EOI };

	if (reader_of((j_common_ptr) jpeg)->started && jpeg_has_multiple_scans(jpeg))
		ERREXIT(jpeg, JERR_INPUT_EOF);
	jpeg->src->next_input_byte = mark;
	jpeg->src->bytes_in_buffer = sizeof mark;
	return TRUE;
}

static void
skip(j_decompress_ptr jpeg, long bytes)
{
	struct jpeg_source_mgr *source = jpeg->src;

	if (bytes <= 0)
		return;
	if ((size_t) bytes > source->bytes_in_buffer)
		bytes = source->bytes_in_buffer;
	source->next_input_byte += bytes;
	source->bytes_in_buffer -= bytes;
}

// look is called for every few lines, also of a pass over the whole picture.
static void
look(j_common_ptr jpeg)
{
	pictor_jpeg *reader = reader_of(jpeg);
	int percent = 0;

	if (reader->next == 0 && jpeg->progress->pass_limit > 0)
		percent = (int) ((gint64) pictor_jpeg_share(reader) * jpeg->progress->pass_counter / jpeg->progress->pass_limit);
	if (!pictorWatched(reader->watcher, percent))
		return;
	vips_error("pictor", "stopped");
	longjmp(reader->escape, 1);
}

static jvirt_barray_ptr
request_plane(j_common_ptr jpeg, int pool, boolean zero, JDIMENSION width, JDIMENSION height, JDIMENSION most)
{
	pictor_jpeg *reader = reader_of(jpeg);
	plane *p = &reader->planes[reader->count];

	if (reader->count == MAX_COMPONENTS)
		ERREXIT(jpeg, JERR_OUT_OF_MEMORY);
	reader->count++;
	p->width = width;
	p->height = height;
	p->rows = jpeg->mem->alloc_large(jpeg, pool, height * sizeof *p->rows);
	return (jvirt_barray_ptr) p;
}

static size_t
plane_size(const plane *p)
{
	size_t page = sysconf(_SC_PAGESIZE), size = (size_t) p->width * p->height * sizeof(JBLOCK);

	return (size + page - 1) / page * page;
}

static int
reserve(int file, off_t size)
{
#ifdef __APPLE__
	return ftruncate(file, size);
#else
	return posix_fallocate(file, 0, size); // a hole that no disk space is left for would kill the process
#endif
}

// map_planes lays the planes one behind the other into the scratch file.
static void
map_planes(j_common_ptr jpeg)
{
	pictor_jpeg *reader = reader_of(jpeg);
	unsigned char *at;

	reader->realize(jpeg);
	for (int i = 0; i < reader->count; i++)
		reader->size += plane_size(&reader->planes[i]);
	if (reader->size == 0)
		return;
	if (reader->scratch < 0 || reserve(reader->scratch, reader->size) != 0 ||
		(at = mmap(NULL, reader->size, PROT_READ | PROT_WRITE, MAP_SHARED, reader->scratch, 0)) == MAP_FAILED) {
		reader->out_of_space = 1;
		ERREXIT(jpeg, JERR_TFILE_WRITE);
	}
	reader->coefficients = at;
	for (int i = 0; i < reader->count; i++) {
		plane *p = &reader->planes[i];

		for (JDIMENSION y = 0; y < p->height; y++)
			p->rows[y] = (JBLOCKROW) (at + (size_t) y * p->width * sizeof(JBLOCK));
		at += plane_size(p);
	}
}

// rows_of gives libjpeg the rows that it asks for. Those far behind them, or of
// the pass before, leave the memory of the process: they stay in the file.
static JBLOCKARRAY
rows_of(j_common_ptr jpeg, jvirt_barray_ptr array, JDIMENSION row, JDIMENSION count, boolean write)
{
	enum { MOST = 1 << 20 }; // bytes
	plane *p = (plane *) array;
	size_t line = p->width * sizeof(JBLOCK);

	if (row + count > p->height)
		ERREXIT(jpeg, JERR_BAD_VIRTUAL_ACCESS);
	if (row < p->from || (row - p->from) * line > MOST) {
		size_t page = sysconf(_SC_PAGESIZE);
		uintptr_t from = (uintptr_t) p->rows[p->from] / page * page;
		uintptr_t to = (uintptr_t) p->rows[row < p->from ? p->height - 1 : row] + (row < p->from ? line : 0);

		madvise((void *) from, to - from, MADV_DONTNEED);
		p->from = row;
	}
	return p->rows + row;
}

pictor_jpeg *
pictor_jpeg_open(const void *data, size_t size, int scratch, uintptr_t watcher)
{
	pictor_jpeg *reader = g_new0(pictor_jpeg, 1);

	reader->jpeg.err = jpeg_std_error(&reader->errors);
	reader->errors.error_exit = give_up;
	reader->errors.emit_message = weigh;
	reader->errors.output_message = be_silent;
	reader->jpeg.client_data = reader;
	reader->watcher = watcher;
	reader->scratch = scratch;
	if (setjmp(reader->escape)) {
		pictor_jpeg_close(reader);
		return NULL;
	}
	jpeg_create_decompress(&reader->jpeg);
	reader->source = (struct jpeg_source_mgr){
		.next_input_byte = data, .bytes_in_buffer = size, .init_source = nothing, .fill_input_buffer = at_end,
		.skip_input_data = skip, .resync_to_restart = jpeg_resync_to_restart, .term_source = nothing,
	};
	reader->jpeg.src = &reader->source;
	reader->progress.progress_monitor = look;
	reader->jpeg.progress = &reader->progress;
	reader->realize = reader->jpeg.mem->realize_virt_arrays;
	reader->jpeg.mem->request_virt_barray = request_plane;
	reader->jpeg.mem->realize_virt_arrays = map_planes;
	reader->jpeg.mem->access_virt_barray = rows_of;
	jpeg_read_header(&reader->jpeg, TRUE);
	return reader;
}

void
pictor_jpeg_close(pictor_jpeg *reader)
{
	if (!reader)
		return;
	jpeg_destroy_decompress(&reader->jpeg);
	if (reader->coefficients)
		munmap(reader->coefficients, reader->size);
	g_free(reader);
}

int
pictor_jpeg_share(pictor_jpeg *reader)
{
	return jpeg_has_multiple_scans(&reader->jpeg) ? 70 : 0;
}

int
pictor_jpeg_out_of_space(const pictor_jpeg *reader)
{
	return reader && reader->out_of_space;
}

static int
read_lines(VipsRegion *to, void *seq, void *a, void *b, gboolean *stop)
{
	pictor_jpeg *reader = a;
	VipsRect *lines = &to->valid;

	if (lines->left != 0 || lines->width != to->im->Xsize || lines->top != reader->next) {
		vips_error("pictor", "line %d asked for instead of %d", lines->top, reader->next);
		return -1;
	}
	if (setjmp(reader->escape))
		return -1;
	if (!reader->started) {
		reader->started = 1;
		jpeg_start_decompress(&reader->jpeg);
		if (reader->jpeg.output_width != (JDIMENSION) to->im->Xsize || reader->jpeg.output_components != to->im->Bands) {
			vips_error("pictor", "not the pixels that the header promised");
			return -1;
		}
	}
	for (; reader->next < VIPS_RECT_BOTTOM(lines); reader->next++) {
		JSAMPROW row = VIPS_REGION_ADDR(to, 0, reader->next);

		jpeg_read_scanlines(&reader->jpeg, &row, 1);
		// Adobe stores how much paper is left, not how much ink there is.
		if (reader->jpeg.out_color_space == JCS_CMYK && reader->jpeg.saw_Adobe_marker)
			for (int i = 0; i < 4 * lines->width; i++)
				row[i] = 255 - row[i];
	}
	return 0;
}

VipsImage *
pictor_jpeg_lines(pictor_jpeg *reader, VipsImage *head)
{
	VipsImage *image = vips_image_new();

	if (vips_image_pipelinev(image, VIPS_DEMAND_STYLE_THINSTRIP, head, NULL) ||
		vips_image_generate(image, NULL, read_lines, NULL, reader, NULL)) {
		g_object_unref(image);
		return NULL;
	}
	return image;
}
