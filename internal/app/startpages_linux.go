package app

/*
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

// has_text_relocations says that the linker wrote into what can only be read.
static int
has_text_relocations(struct dl_phdr_info *object)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		for (const ElfW(Dyn) *d = (void *) (object->dlpi_addr + object->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++)
			if (d->d_tag == DT_TEXTREL || (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_TEXTREL)))
				return 1;
	}
	return 0;
}

static int
release(struct dl_phdr_info *object, size_t size, void *unused)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);

	if (has_text_relocations(object))
		return 0;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t from = object->dlpi_addr + part->p_vaddr, to = (from + part->p_filesz) & -page;

		from = (from + page - 1) & -page;
		if (part->p_type == PT_LOAD && !(part->p_flags & PF_W) && from < to)
			madvise((void *) from, to - from, MADV_DONTNEED); // fails on pages that are locked: they stay
	}
	return 0;
}

// The loader's lock is held meanwhile: no library comes or goes.
static void
release_start_pages(void)
{
	dl_iterate_phdr(release, NULL);
}
*/
import "C"

// releaseStartPages takes the pages out of this process that it read of its own
// file and of its libraries' while it started, half of an idle worker's memory:
// the models, of which the engine has its copies, what 140 libraries were linked
// by, and code that runs once. Nearly none of it is looked at again. It was never
// more than a view of the kernel's cache of files, and what is looked at again
// comes back from there.
//
// Only parts that cannot be written are released. They are as their file is, so
// nothing is lost.
func releaseStartPages() { C.release_start_pages() }
