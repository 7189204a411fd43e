/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_files.c - regular files of a process that could belong to a drive.
 *
 * The descriptors in QEMU's fd sets are not visible from outside. So files that no drive can use
 * are left out, and all others count. A drive's descriptor is open for reading, or for reading and
 * writing: QEMU uses no write-only one from a set (monitor/fds.c), so logs and the pid file are
 * left out. Guest memory is a file that the process has mapped shared, which the block layer never
 * does.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/process.h"

enum {
    MAPS_BYTES = 1024 * 1024,
    LINE_BYTES = 128,    /* all before the path */
    LINES_AT_A_TIME = 64 /* asking for the time takes longer than a line */
};

/* ADDRESSES PERMISSIONS OFFSET MAJOR:MINOR INODE [PATH]. Parsed by hand: a VMM has up to 14,000
 * such lines, and sscanf(3) takes 7 us for each. */
static bool read_shared(const char *line, struct vmm_identity *ret_identity)
{
    const char *permissions = strchr(line, ' ');
    const char *offset = permissions ? strchr(permissions + 1, ' ') : NULL;
    const char *device = offset ? strchr(offset + 1, ' ') : NULL;
    unsigned device_major, device_minor;
    char *end;

    if (!device || offset - permissions != 5 || permissions[4] != 's')
        return false;
    device_major = (unsigned)strtoul(device, &end, 16);
    if (*end != ':')
        return false;
    device_minor = (unsigned)strtoul(end + 1, &end, 16);
    if (*end != ' ' || !isdigit((unsigned char)end[1]))
        return false;
    *ret_identity = (struct vmm_identity){.device = makedev(device_major, device_minor),
                                          .inode = (ino_t)strtoull(end, NULL, 10)};
    return true;
}

static void cut_line(const char *text, size_t length, char ret_line[static LINE_BYTES])
{
    size_t kept = length < LINE_BYTES ? length : LINE_BYTES - 1;

    memcpy(ret_line, text, kept);
    ret_line[kept] = '\0';
}

static size_t remove_equal(struct vmm_file *files, size_t count,
                           const struct vmm_identity *identity)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (!vmm_identity_equal(&files[i].identity, identity))
            files[kept++] = files[i];
    return kept;
}

/* Takes the files out that are mapped shared. A line that is not whole does not count. */
static int remove_memory(struct vmm_process *process, struct vmm_file *files, size_t *count)
{
    cleanup(buffer_done) struct buffer maps = BUFFER_INIT(MAPS_BYTES);
    int r = *count ? process_read_maps(process->pid, MAPS_BYTES, &maps) : 0;
    unsigned lines = 0;
    const char *next;

    for (const char *text = buffer_text(&maps); r == 0 && (next = strchr(text, '\n'));
         text = next + 1) {
        struct vmm_identity identity;
        char line[LINE_BYTES];

        cut_line(text, (size_t)(next - text), line);
        if (!read_shared(line, &identity))
            continue;
        if (lines++ % LINES_AT_A_TIME == 0 && vmm_resolver_is_exhausted(&process->resolver))
            return -ETIME;
        *count = remove_equal(files, *count, &identity);
    }
    return r == PROCESS_HANGS ? -ETIME : r;
}

static int add_file(const struct vmm_process *process, const char *name, struct vmm_file *files,
                    size_t size, size_t *count)
{
    bool readable = true;
    struct stat st;
    int r;

    if (!isdigit((unsigned char)name[0]) || vmm_process_stat(process, name, &st) < 0 ||
        !S_ISREG(st.st_mode))
        return 0;
    r = vmm_process_is_readable(process, name, &readable);
    if (r == PATH_MISSING || (r == 0 && !readable))
        return 0; /* closed meanwhile */
    if (r < 0)
        return r;
    if (*count == size)
        return -EMSGSIZE;
    files[(*count)++] =
        (struct vmm_file){.identity = {.device = st.st_dev, .inode = st.st_ino}, .fd = atoi(name)};
    return 0;
}

int vmm_files_list(struct vmm_resolver *resolver, struct vmm_file *ret_files, size_t size,
                   size_t *ret_count)
{
    struct vmm_process *process = container_of(resolver, struct vmm_process, resolver);
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list(process->descriptors, &names);

    *ret_count = 0;
    for (unsigned seen = 0; r == 0 && (name = directory_next(names)); seen++) {
        resolver->exhausted |= seen == VMM_DESCRIPTORS;
        r = vmm_resolver_is_exhausted(resolver)
                ? -ETIME
                : add_file(process, name, ret_files, size, ret_count);
    }
    return r < 0 ? r : remove_memory(process, ret_files, ret_count);
}
