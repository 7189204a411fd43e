/* namespaces.c - by nsfs, and by what /proc has for this process itself. */
#include "lib/namespaces.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"

#define FIRST_USER_NAMESPACE 0xEFFFFFFDU
#define FIRST_PID_NAMESPACE  0xEFFFFFFCU

enum { MOUNTS_BYTES = 4 * 1024 * 1024 };

static bool has_inode(const char *path, ino_t inode)
{
    struct stat status;

    return stat(path, &status) == 0 && status.st_ino == inode;
}

/* A /proc of another namespace has no entry for us, or another number; one that hides others'
 * processes hides the first. */
bool namespaces_show_all_processes(void)
{
    char self[32];
    ssize_t length = readlink("/proc/self", self, sizeof(self) - 1);

    if (length <= 0)
        return false;
    self[length] = '\0';
    return strtol(self, NULL, 10) == getpid() &&
           has_inode("/proc/self/ns/pid", FIRST_PID_NAMESPACE) && access("/proc/1/stat", R_OK) == 0;
}

bool namespaces_user_is_first(void)
{
    return has_inode("/proc/self/ns/user", FIRST_USER_NAMESPACE);
}

/* Mounts are numbered across namespaces, so the first process has our root only if it has our
 * namespace too. (Its /proc/1/ns is not everybody's to look at.) */
static bool is_root_of_first(uint64_t mount)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNTS_BYTES);
    cleanup(fd_closep) int fd = open("/proc/1/mountinfo", O_RDONLY | O_CLOEXEC);
    const char *line;

    if (fd < 0 || buffer_read_all(&text, fd) < 0)
        return false;
    for (line = buffer_text(&text); *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned long long id;
        int end = 0;

        if (sscanf(line, "%llu %*u %*s %*s / %n", &id, &end) == 1 && end > 0 && id == mount)
            return true;
    }
    return false;
}

bool namespaces_mounts_are_first(void)
{
    struct statx root;

    return namespaces_show_all_processes() && statx(AT_FDCWD, "/", 0, STATX_MNT_ID, &root) == 0 &&
           (root.stx_mask & STATX_MNT_ID) && is_root_of_first(root.stx_mnt_id);
}
