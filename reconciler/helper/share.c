/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - see helper.h. */
#include "reconciler/helper/helper.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/directory.h"
#include "lib/path.h"

#define HOST_SANDBOXES "/run/kata-containers/shared/sandboxes"
#define GUEST_SHARE    "/run/kata-containers/shared/containers"
#define PREFIX         "crust-"

enum { HEX_CHARS = 16, NAMES = 4096, COPY_BYTES = 64 * 1024 };

/* The mount points that versions up to 0.2 made beside the program. */
static const char *const directories[] = {"proc", "sys", "dev", "vol"};

static bool is_rust(enum kata_runtime runtime)
{
    return runtime == RUNTIME_KATA_RS;
}

/* Whether it is missing, behind a link, on another mount, or not permitted. */
static bool is_absence(int r)
{
    return path_leads_nowhere(r) || r == PATH_LEADS_OUT || r == PATH_FORBIDDEN ||
           r == PATH_NOT_PERMITTED;
}

int helper_share_open(int root, enum kata_runtime runtime, const char *sandbox_id, int *ret_fd,
                      struct error *error)
{
    cleanup(fd_closep) int sandboxes = -1, writable = -1;
    char below[NAME_MAX + 32], whole[NAME_MAX + 32];
    int r = path_open_directory_in_root(root, HOST_SANDBOXES, &sandboxes), outcome;

    (void)snprintf(below, sizeof(below), "%s/%s", sandbox_id,
                   is_rust(runtime) ? "rw/passthrough" : "mounts");
    if (r == 0)
        r = path_open_directory_below(sandboxes, below, ret_fd);
    if (r == 0)
        return HELPER_SHARE_OK;
    outcome = is_absence(r) ? HELPER_SHARE_ABSENT : r;
    (void)snprintf(whole, sizeof(whole), "%s/rw", sandbox_id);
    if (path_is_missing(r) && is_rust(runtime) &&
        path_open_directory_below(sandboxes, whole, &writable) == 0)
        outcome = HELPER_SHARE_LATER; /* only the directory for containers is still missing */
    return error_set(error, outcome, HOST_SANDBOXES "/%s: %s", below, strerror(-r));
}

void helper_share_guest_path(enum kata_runtime runtime, const char *name,
                             char ret_path[static HELPER_GUEST_PATH_BYTES])
{
    (void)snprintf(ret_path, HELPER_GUEST_PATH_BYTES, GUEST_SHARE "%s/%s",
                   is_rust(runtime) ? "/passthrough" : "", name);
}

/* ---- names ------------------------------------------------------------------------------- */

static int draw(void *ret_number, size_t size)
{
    ssize_t length = getrandom(ret_number, size, 0);

    return length == (ssize_t)size ? 0 : length < 0 ? -errno : -EAGAIN;
}

int helper_name_make(char ret_name[static HELPER_NAME_BYTES])
{
    uint64_t number;
    int r = draw(&number, sizeof(number));

    if (r == 0)
        (void)snprintf(ret_name, HELPER_NAME_BYTES, PREFIX "%016" PRIx64, number);
    return r;
}

bool helper_name_is_ours(const char *name)
{
    const char *digits = name + strlen(PREFIX);

    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && strlen(digits) == HEX_CHARS &&
           strspn(digits, "0123456789abcdef") == HEX_CHARS;
}

int helper_share_has(int share, const char *name)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_below(share, name, &fd);

    return r == 0 ? HELPER_SHARE_HAS : is_absence(r) ? HELPER_SHARE_HAS_NOT : r;
}

int helper_share_name_drive(const char *serial, char ret_name[static HELPER_NAME_BYTES])
{
    uint32_t number;
    int r = draw(&number, sizeof(number));

    if (r == 0)
        (void)snprintf(ret_name, HELPER_NAME_BYTES, "%s.%08x", serial, number);
    return r;
}

int helper_share_find_drive(int share, const char *serial, char ret_name[static HELPER_NAME_BYTES])
{
    cleanup(dir_closep) DIR *names = NULL;
    size_t length = strlen(serial);
    const char *name;
    int r = directory_list(share, &names);

    for (unsigned i = 0; r == 0 && i < NAMES && (name = directory_next(names)); i++)
        if (strncmp(name, serial, length) == 0 && (!name[length] || name[length] == '.') &&
            strlen(name) < HELPER_NAME_BYTES) {
            (void)strcpy(ret_name, name);
            return HELPER_SHARE_HAS;
        }
    return r < 0 ? r : HELPER_SHARE_HAS_NOT;
}

int helper_share_each(int share, int (*callback)(void *userdata, const char *name), void *userdata)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list(share, &names);

    for (unsigned i = 0; r == 0 && i < NAMES && (name = directory_next(names)); i++)
        if (helper_name_is_ours(name))
            r = callback(userdata, name);
    return r;
}

/* ---- placing ----------------------------------------------------------------------------- */

/* Makes it with its mode, because the guest's root may be another user on the host. fchmod(2) after
 * mkdirat(2) would change another directory if the sandbox's processes exchange the two. */
static int make_directory(int parent, const char *name)
{
    mode_t mask = umask(0);
    int r = mkdirat(parent, name, 0755) < 0 ? -errno : 0;

    (void)umask(mask);
    return r;
}

static int copy_program(int from, int to)
{
    static char data[COPY_BYTES];
    off_t offset = 0;

    for (;;) {
        ssize_t length = pread(from, data, sizeof(data), offset);
        int r;

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            return length < 0 ? -errno : 0;
        r = path_write(to, data, (size_t)length);
        if (r < 0)
            return r;
        offset += length;
    }
}

static int place_program(int directory, int program)
{
    cleanup(fd_closep) int fd = openat(directory, HELPER_PROGRAM_NAME,
                                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r;

    if (fd < 0)
        return -errno;
    r = copy_program(program, fd);
    if (r == 0 && fchmod(fd, 0555) < 0)
        r = -errno;
    /* A file that is still open for writing cannot be executed. */
    return close(take_fd(&fd)) < 0 && r == 0 ? -errno : r;
}

int helper_share_place(int share, const char *name, int program, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    int r = make_directory(share, name);

    if (r == PATH_IS_TAKEN)
        return error_set_errno(error, r, "cannot make %s in the sandbox's shared directory", name);
    if (r == 0)
        r = path_open_directory_below(share, name, &directory);
    if (r == 0)
        r = place_program(directory, program);
    if (r == 0)
        return 0;
    (void)helper_share_remove(share, name);
    return error_set_errno(error, r, "cannot place the helper in the sandbox's shared directory");
}

/* ---- removing ---------------------------------------------------------------------------- */

/* Removes only an empty directory, so nothing that others put there is lost. */
static int remove_directory(int directory, const char *name)
{
    return unlinkat(directory, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int helper_share_remove(int share, const char *name)
{
    cleanup(fd_closep) int directory = -1;
    int r = path_open_directory_below(share, name, &directory);

    if (r < 0)
        return r == PATH_MISSING ? 0 : r;
    r = removal_run(directory, HELPER_PROGRAM_NAME, 0, NULL);
    for (size_t i = 0; r == 0 && i < array_length(directories); i++)
        r = remove_directory(directory, directories[i]);
    return r == 0 ? remove_directory(share, name) : r;
}

/* ---- program -------------------------------------------------------------------------------- */

/* See helper.h.
 *
 * The file belongs to crustd's own installation, so it is not below --root: in a pod it comes with
 * the image. If the key has its default, the path is derived from crustd's own: PREFIX/sbin/crustd
 * and PREFIX/libexec/crustd/crust-guest-agent.
 *
 * A guest has the architecture of its node. Class, byte order and machine are compared with those
 * of crustd's own file, so no list of machines is needed.
 */

/* Whether it is an ELF file at all. The members that are used have the same offsets in both
 * classes.
 */
static bool read_header(int fd, Elf64_Ehdr *ret_header)
{
    return pread(fd, ret_header, sizeof(*ret_header), 0) == sizeof(*ret_header) &&
           memcmp(ret_header->e_ident, ELFMAG, SELFMAG) == 0;
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
    Elf64_Ehdr wanted, found;

    if (own < 0)
        return error_set_errno(error, -errno, "cannot open /proc/self/exe");
    if (!read_header(own, &wanted))
        return 0;
    if (!read_header(fd, &found))
        return error_set(error, HELPER_PROGRAM_FOREIGN, "%s is no ELF program", path);
    if (found.e_ident[EI_CLASS] != wanted.e_ident[EI_CLASS] ||
        found.e_ident[EI_DATA] != wanted.e_ident[EI_DATA] || found.e_machine != wanted.e_machine)
        return error_set(error, HELPER_PROGRAM_FOREIGN, "%s is for ELF machine %u, this node is %u",
                         path, found.e_machine, wanted.e_machine);
    return HELPER_PROGRAM_OK;
}

/* Any other error, such as EMFILE, says nothing about the file. */
static bool is_program_missing(int number)
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
        return error_set(error, is_program_missing(errno) ? HELPER_PROGRAM_MISSING : -errno,
                         "%s: %s", path, strerror(errno));
    r = check_file(fd, path, error);
    if (r == HELPER_PROGRAM_OK)
        r = check_architecture(fd, path, error);
    if (r == HELPER_PROGRAM_OK)
        *ret_fd = take_fd(&fd);
    return r;
}
