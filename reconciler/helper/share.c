/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - see share.h. */
#include "reconciler/helper/share.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/path.h"

#define HOST_SANDBOXES "/run/kata-containers/shared/sandboxes"
#define GUEST_SHARE    "/run/kata-containers/shared/containers"
#define PREFIX         "crust-"

enum { HEX_CHARS = 16, NAMES = 4096, COPY_BYTES = 64 * 1024 };

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

/* The sandbox shares a directory, in which the one for containers is still missing. */
static bool comes_later(int sandboxes, enum kata_runtime runtime, const char *sandbox_id)
{
    cleanup(fd_closep) int fd = -1;
    char below[NAME_MAX + 32];

    (void)snprintf(below, sizeof(below), "%s/rw", sandbox_id);
    return is_rust(runtime) && path_open_directory_below(sandboxes, below, &fd) == 0;
}

int helper_share_open(int root, enum kata_runtime runtime, const char *sandbox_id, int *ret_fd,
                      struct error *error)
{
    cleanup(fd_closep) int sandboxes = -1;
    char below[NAME_MAX + 32];
    int r = path_open_directory_in_root(root, HOST_SANDBOXES, &sandboxes), outcome;

    (void)snprintf(below, sizeof(below), "%s/%s", sandbox_id,
                   is_rust(runtime) ? "rw/passthrough" : "mounts");
    if (r == 0)
        r = path_open_directory_below(sandboxes, below, ret_fd);
    if (r == 0)
        return HELPER_SHARE_OK;
    outcome = is_absence(r) ? HELPER_SHARE_ABSENT : r;
    if (path_is_missing(r) && comes_later(sandboxes, runtime, sandbox_id))
        outcome = HELPER_SHARE_LATER;
    return error_set(error, outcome, HOST_SANDBOXES "/%s: %s", below, strerror(-r));
}

void helper_share_guest_path(enum kata_runtime runtime, const char *name,
                             char ret_path[static HELPER_GUEST_PATH_BYTES])
{
    (void)snprintf(ret_path, HELPER_GUEST_PATH_BYTES, GUEST_SHARE "%s/%s",
                   is_rust(runtime) ? "/passthrough" : "", name);
}

/* ---- names ------------------------------------------------------------------------------- */

int helper_name_make(char ret_name[static HELPER_NAME_BYTES])
{
    uint64_t number;
    ssize_t length = getrandom(&number, sizeof(number), 0);

    if (length != sizeof(number))
        return length < 0 ? -errno : -EAGAIN;
    (void)snprintf(ret_name, HELPER_NAME_BYTES, PREFIX "%016llx", (unsigned long long)number);
    return 0;
}

bool helper_name_is_ours(const char *name)
{
    const char *digits = name + strlen(PREFIX);

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(digits) != HEX_CHARS)
        return false;
    for (const char *digit = digits; *digit; digit++)
        if (!isdigit((unsigned char)*digit) && (*digit < 'a' || *digit > 'f'))
            return false;
    return true;
}

int helper_share_has(int share, const char *name)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_below(share, name, &fd);

    return r == 0 ? HELPER_SHARE_HAS : is_absence(r) ? HELPER_SHARE_HAS_NOT : r;
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

static int write_whole(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, data, length);

        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        }
    }
    return 0;
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
        r = write_whole(to, data, (size_t)length);
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

static int place_all(int directory, int program)
{
    int r = place_program(directory, program);

    for (size_t i = 0; r == 0 && i < array_length(directories); i++)
        r = make_directory(directory, directories[i]);
    return r;
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
        r = place_all(directory, program);
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

/* ---- leftovers ------------------------------------------------------------------------------ */

static const uint64_t FIRST_PAUSE_NS = 2 * NSEC_PER_SEC;
enum { PAUSE_DOUBLINGS = 7 };

static struct helper_leftover *find(const struct helper_leftovers *leftovers, const char *name)
{
    struct helper_leftover *one = leftovers->first;

    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

static struct helper_leftover *add(struct helper_leftovers *leftovers, const char *name)
{
    struct helper_leftover *one = calloc(1, sizeof(*one));

    if (!one)
        return NULL; /* the record stays, and the next start finds it */
    (void)snprintf(one->name, sizeof(one->name), "%s", name);
    one->next = leftovers->first;
    leftovers->first = one;
    return one;
}

void helper_leftovers_put(struct helper_leftovers *leftovers, const char *name,
                          const struct error *error)
{
    struct helper_leftover *one = find(leftovers, name);

    if (!one)
        one = add(leftovers, name);
    if (!one || !error)
        return;
    one->next_ns = clock_boottime() + (FIRST_PAUSE_NS << one->failures);
    one->failures += one->failures < PAUSE_DOUBLINGS;
    (void)error_set(&leftovers->error, 0, "an earlier helper is still in the guest: %s",
                    error->text[0] ? error->text : "it could not be removed");
}

void helper_leftovers_remove(struct helper_leftovers *leftovers, const char *name)
{
    for (struct helper_leftover **link = &leftovers->first; *link; link = &(*link)->next) {
        struct helper_leftover *one = *link;

        if (strcmp(one->name, name) != 0)
            continue;
        *link = one->next;
        free(one);
        return;
    }
}

void helper_leftovers_done(struct helper_leftovers *leftovers)
{
    while (leftovers->first)
        helper_leftovers_remove(leftovers, leftovers->first->name);
}

bool helper_leftovers_are_none(const struct helper_leftovers *leftovers)
{
    return !leftovers->first;
}

const char *helper_leftovers_due(const struct helper_leftovers *leftovers)
{
    uint64_t now = leftovers->first ? clock_boottime() : 0;

    for (const struct helper_leftover *one = leftovers->first; one; one = one->next)
        if (one->next_ns <= now)
            return one->name;
    return NULL;
}

bool helper_leftovers_are_stuck(const struct helper_leftovers *leftovers)
{
    return leftovers->first && !helper_leftovers_due(leftovers);
}

uint64_t helper_leftovers_wait(const struct helper_leftovers *leftovers)
{
    uint64_t least = UINT64_MAX, now = clock_boottime();

    for (const struct helper_leftover *one = leftovers->first; one; one = one->next)
        if (one->next_ns < least)
            least = one->next_ns;
    if (least == UINT64_MAX)
        return least;
    return least > now ? least - now : 0;
}

int helper_leftovers_search(int root, const struct store_helper_run *sandbox,
                            int (*callback)(void *userdata, const char *name), void *userdata)
{
    cleanup(fd_closep) int share = -1;

    int r = helper_share_open(root, sandbox->runtime, sandbox->sandbox_id, &share, NULL);

    return r == HELPER_SHARE_OK ? helper_share_each(share, callback, userdata) : r < 0 ? r : 0;
}
