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
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/process.h"

enum { MAPS_BYTES = 1024 * 1024, LINE_BYTES = 128 /* all before the path */ };

static void close_filep(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

static FILE *open_of_process(pid_t pid, const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

static int is_readable(pid_t pid, int fd, bool *ret_readable)
{
    cleanup(close_filep) FILE *file = NULL;
    char name[32], line[128];
    unsigned flags;

    (void)snprintf(name, sizeof(name), "fdinfo/%d", fd);
    file = open_of_process(pid, name);
    if (!file)
        return -errno;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "flags: %o", &flags) == 1) {
            *ret_readable = (flags & O_ACCMODE) != O_WRONLY;
            return 0;
        }
    return -EBADMSG;
}

/* ADDRESSES PERMISSIONS OFFSET MAJOR:MINOR INODE [PATH] */
static bool read_shared(const char *line, struct vmm_identity *ret_identity)
{
    unsigned device_major, device_minor;
    uint64_t inode;
    char shared;

    if (sscanf(line, "%*s %*c%*c%*c%c %*s %x:%x %" SCNu64, &shared, &device_major, &device_minor,
               &inode) != 4)
        return false;
    *ret_identity =
        (struct vmm_identity){.device = makedev(device_major, device_minor), .inode = (ino_t)inode};
    return shared == 's';
}

/* Each line is parsed by itself, because sscanf(3) measures all the text that it is given. */
static void cut_line(const char *text, size_t length, char ret_line[static LINE_BYTES])
{
    size_t kept = length < LINE_BYTES ? length : LINE_BYTES - 1;

    memcpy(ret_line, text, kept);
    ret_line[kept] = '\0';
}

/* Takes the files out that are mapped shared. A line that is not whole does not count. */
static int remove_memory(pid_t pid, struct vmm_file *files, size_t *count)
{
    cleanup(buffer_done) struct buffer maps = BUFFER_INIT(MAPS_BYTES);
    int r = *count ? process_read_maps(pid, MAPS_BYTES, &maps) : 0;
    const char *next;

    for (const char *text = buffer_text(&maps); r == 0 && (next = strchr(text, '\n'));
         text = next + 1) {
        struct vmm_identity identity;
        char line[LINE_BYTES];
        size_t kept = 0;

        cut_line(text, (size_t)(next - text), line);
        if (!read_shared(line, &identity))
            continue;
        for (size_t i = 0; i < *count; i++)
            if (!vmm_identity_equal(&files[i].identity, &identity))
                files[kept++] = files[i];
        *count = kept;
    }
    return r == PROCESS_HANGS ? -ETIME : r;
}

static int add_file(struct vmm_process *process, const char *name, struct vmm_file *files,
                    size_t size, size_t *count)
{
    int fd = atoi(name), r;
    bool readable = true;
    struct stat st;

    if (!isdigit((unsigned char)name[0]) || vmm_process_stat(process, name, &st) < 0 ||
        !S_ISREG(st.st_mode))
        return 0;
    r = is_readable(process->pid, fd, &readable);
    if (r == PATH_MISSING || (r == 0 && !readable))
        return 0; /* closed meanwhile */
    if (r < 0)
        return r;
    if (*count == size)
        return -EMSGSIZE;
    files[(*count)++] =
        (struct vmm_file){.identity = {.device = st.st_dev, .inode = st.st_ino}, .fd = fd};
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
        r = resolver->exhausted ? -ETIME : add_file(process, name, ret_files, size, ret_count);
    }
    return r < 0 ? r : remove_memory(process->pid, ret_files, ret_count);
}
