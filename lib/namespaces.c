/* namespaces.c - by nsfs, and by what /proc has for this process itself. */
#include "lib/namespaces.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_USER_NAMESPACE 0xEFFFFFFDU
#define FIRST_PID_NAMESPACE  0xEFFFFFFCU

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
