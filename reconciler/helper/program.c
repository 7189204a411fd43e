/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - see program.h.
 *
 * The file belongs to crustd's own installation, so it is not below --root: in a pod it comes with
 * the image. If the key has its default, the path is derived from crustd's own: PREFIX/sbin/crustd
 * and PREFIX/libexec/crustd/crust-guest-agent.
 *
 * A guest has the architecture of its node. Class, byte order and machine are compared with those
 * of crustd's own file, so no list of machines is needed.
 */
#include "reconciler/helper/report.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* Class, byte order and machine. */
struct architecture {
    unsigned char class, order;
    uint16_t machine;
};

/* Whether it is an ELF file at all. */
static bool read_architecture(int fd, struct architecture *ret_architecture)
{
    Elf64_Ehdr header; /* the members that are read have the same offsets in both classes */

    if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    *ret_architecture =
        (struct architecture){header.e_ident[EI_CLASS], header.e_ident[EI_DATA], header.e_machine};
    return true;
}

static bool find_beside(char ret_path[static PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);
    static const char there[] = "/libexec/crustd/crust-guest-agent";

    if (length <= 0)
        return false;
    ret_path[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(ret_path, '/');

        if (!slash)
            return false;
        *slash = '\0';
    }
    if (strlen(ret_path) + sizeof(there) > PATH_MAX)
        return false;
    (void)strcat(ret_path, there);
    return access(ret_path, F_OK) == 0;
}

static int check_file(int fd, const char *path, struct error *error)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(error, -errno, "cannot read the status of %s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(error, HELPER_PROGRAM_MISSING, "%s is no regular file", path);
    if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(error, HELPER_PROGRAM_MISSING,
                         "%s must be root's, and writable by nobody else", path);
    if (st.st_size > HELPER_PROGRAM_BYTES)
        return error_set(error, HELPER_PROGRAM_MISSING, "%s is larger than %d MiB", path,
                         HELPER_PROGRAM_BYTES >> 20);
    return HELPER_PROGRAM_OK;
}

static int check_architecture(int fd, const char *path, struct error *error)
{
    cleanup(fd_closep) int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct architecture wanted, found;

    if (own < 0)
        return error_set_errno(error, -errno, "cannot open /proc/self/exe");
    if (!read_architecture(own, &wanted))
        return 0;
    if (!read_architecture(fd, &found))
        return error_set(error, HELPER_PROGRAM_FOREIGN, "%s is no ELF program", path);
    if (found.class != wanted.class || found.order != wanted.order ||
        found.machine != wanted.machine)
        return error_set(error, HELPER_PROGRAM_FOREIGN, "%s is for ELF machine %u, this node is %u",
                         path, found.machine, wanted.machine);
    return HELPER_PROGRAM_OK;
}

/* Any other error, such as EMFILE, says nothing about the file. */
static bool is_absence(int number)
{
    return number == ENOENT || number == ENOTDIR || number == ELOOP || number == EACCES ||
           number == EPERM || number == ENXIO || number == ENAMETOOLONG;
}

int helper_program_open(const struct config *config, int *ret_fd, struct error *error)
{
    cleanup(fd_closep) int fd = -1;
    char beside[PATH_MAX];
    const char *path = config->guest.helper_file;
    int r;

    if (strcmp(path, CONFIG_HELPER_FILE) == 0 && find_beside(beside))
        path = beside;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return error_set(error, is_absence(errno) ? HELPER_PROGRAM_MISSING : -errno, "%s: %s", path,
                         strerror(errno));
    r = check_file(fd, path, error);
    if (r == HELPER_PROGRAM_OK)
        r = check_architecture(fd, path, error);
    if (r == HELPER_PROGRAM_OK)
        *ret_fd = take_fd(&fd);
    return r;
}
