/* SPDX-License-Identifier: Apache-2.0 */
/* path_test.c - everything that can lie in the way of a file, in a scratch directory. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

static char scratch[SCRATCH_BYTES];
static int directory;

static int make_scratch(void **state)
{
    if (scratch_directory_make(scratch) < 0)
        return -1;
    directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 ? -1 : 0;
}

static int remove_scratch(void **state)
{
    close(directory);
    return scratch_directory_remove(scratch);
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int read_below(const char *name, struct error *error)
{
    struct buffer text = BUFFER_INIT(8);
    int r = path_read_below(directory, name, &text, NULL, error);

    if (r != PATH_OK)
        assert_int_equal(text.length, 0);
    buffer_done(&text);
    return r;
}

static void reads_a_file(void **state)
{
    struct path_identity identity, again;
    struct buffer text = BUFFER_INIT(8);

    make_file("a", "12345678", 0600);
    assert_int_equal(path_read_below(directory, "a", &text, &identity, NULL), PATH_OK);
    assert_string_equal(buffer_text(&text), "12345678");
    assert_int_equal(identity.size, 8);
    /* What was there before is replaced. */
    assert_int_equal(path_read_below(directory, "a", &text, &again, NULL), PATH_OK);
    assert_string_equal(buffer_text(&text), "12345678");
    assert_true(path_identity_equal(&identity, &again));
    buffer_done(&text);
}

static void refused_files_are_reported_with_the_reason(void **state)
{
    struct error error;

    make_file("big", "123456789", 0600);
    make_file("group", "x", 0620);
    make_file("other", "x", 0602);
    make_file("linked", "x", 0600);
    assert_int_equal(linkat(directory, "linked", directory, "hard", 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", directory, "symlink"), 0);
    assert_int_equal(symlinkat("linked", directory, "near"), 0);
    assert_int_equal(symlinkat("/proc/self/fd/0", directory, "magic"), 0);
    assert_int_equal(mkfifoat(directory, "fifo", 0600), 0);
    assert_int_equal(mkdirat(directory, "dir", 0700), 0);
    assert_int_equal(symlinkat("dir", directory, "dirlink"), 0);

    assert_int_equal(read_below("absent", &error), PATH_ABSENT);
    assert_int_equal(read_below("dir/absent", &error), PATH_ABSENT);
    assert_int_equal(read_below("big", &error), PATH_TOO_BIG);
    assert_string_equal(error.text, "big: more than 8 bytes");
    assert_int_equal(read_below("group", &error), PATH_UNSAFE);
    assert_int_equal(read_below("other", &error), PATH_UNSAFE);
    assert_string_equal(error.text, "other: is writable by others than its owner");
    assert_int_equal(read_below("hard", &error), PATH_UNSAFE);
    assert_string_equal(error.text, "hard: has several hard links");
    assert_int_equal(read_below("symlink", &error), PATH_UNSAFE);
    assert_int_equal(read_below("near", &error), PATH_UNSAFE);
    assert_int_equal(read_below("magic", &error), PATH_UNSAFE);
    assert_int_equal(read_below("dirlink/x", &error), PATH_UNSAFE);
    assert_int_equal(read_below("fifo", &error), PATH_UNSAFE);
    assert_string_equal(error.text, "fifo: not a regular file");
    assert_int_equal(read_below("dir", &error), PATH_UNSAFE);
    assert_int_equal(read_below("big/x", &error), PATH_UNSAFE);
    assert_int_equal(read_below("/etc/passwd", &error), PATH_UNSAFE);
    assert_int_equal(read_below("../x", &error), PATH_UNSAFE);
    assert_int_equal(read_below("dir/../../x", &error), PATH_UNSAFE);
}

/* Nobody can write to it, whatever its own mode, unless it has another name elsewhere. */
static void mode_of_a_file_counts_where_others_can_enter(void **state)
{
    static const struct {
        const char *name;
        mode_t directory;
        int expected;
    } cases[] = {
        {"open", 0700, PATH_OK},     {"open", 0711, PATH_UNSAFE}, {"open", 0710, PATH_UNSAFE},
        {"hard", 0700, PATH_UNSAFE}, {"none", 0700, PATH_ABSENT},
    };

    make_file("open", "x", 0666);
    make_file("hard", "x", 0666);
    assert_int_equal(linkat(directory, "hard", directory, "again", 0), 0);
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(8);

        assert_int_equal(fchmod(directory, cases[i].directory), 0);
        assert_int_equal(path_read_in_private(directory, cases[i].name, &text, NULL),
                         cases[i].expected);
    }
}

static void refuses_a_socket(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/socket", scratch);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(read_below("socket", NULL), PATH_UNSAFE);
}

static void refuses_a_foreign_owner(void **state)
{
    if (geteuid() != 0)
        skip();
    make_file("foreign", "x", 0600);
    assert_int_equal(fchownat(directory, "foreign", 65534, 65534, 0), 0);
    assert_int_equal(read_below("foreign", NULL), PATH_UNSAFE);
}

static void refuses_another_mount(void **state)
{
    cleanup(fd_closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct buffer text = BUFFER_INIT(4096);
    int fd;

    assert_int_equal(path_read_below(root, "proc/version", &text, NULL, NULL), PATH_UNSAFE);
    assert_int_equal(path_open_directory_below(root, "proc", &fd), -EXDEV);
    buffer_done(&text);
}

static void opens_directories(void **state)
{
    int fd = -7;

    make_file("file", "", 0600);
    assert_int_equal(mkdirat(directory, "dir", 0700), 0);
    assert_int_equal(symlinkat("dir", directory, "link"), 0);
    assert_int_equal(path_open_directory_below(directory, "file", &fd), -ENOTDIR);
    assert_int_equal(path_open_directory_below(directory, "link", &fd), -ELOOP);
    assert_int_equal(path_open_directory_below(directory, "..", &fd), -EXDEV);
    assert_int_equal(path_open_directory_below(directory, "absent", &fd), -ENOENT);
    assert_int_equal(fd, -7);
    assert_int_equal(path_open_directory_below(directory, "dir", &fd), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    assert_int_equal(path_open_directory_in_root(directory, "/link", &fd), 0);
    close(fd);
}

static void links_stay_inside_the_root(void **state)
{
    struct buffer text = BUFFER_INIT(64);
    struct stat st;
    int root;

    assert_int_equal(path_open_root(scratch, &root), 0);
    assert_int_equal(mkdirat(directory, "etc", 0700), 0);
    make_file("etc/passwd", "inside", 0666);
    assert_int_equal(symlinkat("/etc/passwd", directory, "absolute"), 0);
    assert_int_equal(symlinkat("../../../../etc/passwd", directory, "upwards"), 0);
    assert_int_equal(path_read_in_root(root, "/absolute", &text, NULL), PATH_OK);
    assert_string_equal(buffer_text(&text), "inside");
    assert_int_equal(path_read_in_root(root, "/../upwards", &text, NULL), PATH_OK);
    assert_string_equal(buffer_text(&text), "inside");
    assert_int_equal(path_stat_in_root(root, "/absolute", &st), 0);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(path_stat_in_root(root, "/etc/shadow", &st), -ENOENT);
    assert_int_equal(path_read_in_root(root, "/etc", &text, NULL), PATH_UNSAFE);
    assert_int_equal(path_read_in_root(root, "/none", &text, NULL), PATH_ABSENT);
    assert_string_equal(buffer_text(&text), "inside"); /* untouched */
    buffer_done(&text);
    close(root);
}

/* Files of the kernel say nothing true about their size. */
static void reads_kernel_files(void **state)
{
    struct buffer text = BUFFER_INIT(4096);
    int root;

    assert_int_equal(path_open_root(NULL, &root), 0);
    assert_int_equal(path_read_in_root(root, "/proc/sys/kernel/ostype", &text, NULL), PATH_OK);
    assert_string_equal(buffer_text(&text), "Linux\n");
    buffer_done(&text);
    close(root);
    assert_int_equal(path_open_root("/proc/version", &root), -ENOTDIR);
}

static void identity_sees_a_rewrite(void **state)
{
    struct path_identity before, after;
    int fd;

    make_file("a", "1234", 0600);
    fd = openat(directory, "a", O_RDWR | O_CLOEXEC);
    assert_int_equal(path_identify(fd, &before), 0);
    assert_int_equal(ftruncate(fd, 3), 0);
    assert_int_equal(path_identify(fd, &after), 0);
    assert_false(path_identity_equal(&before, &after));
    assert_true(path_identity_equal(&after, &after));
    close(fd);
    assert_int_equal(path_identify(-1, &after), -EBADF);
}

static void resolves_for_libraries(void **state)
{
    char path[PATH_MAX], expected[PATH_MAX + 32];
    int root;

    assert_int_equal(path_open_root(scratch, &root), 0);
    assert_int_equal(path_make_directories(root, "/data/real", 0700), 0);
    assert_int_equal(symlinkat("/data/real", directory, "linked"), 0);
    (void)snprintf(expected, sizeof(expected), "%s/data/real/new", scratch);
    assert_int_equal(path_resolve(root, scratch, "/linked/new", path), 0);
    assert_string_equal(path, expected);
    make_file("there", "", 0600);
    (void)snprintf(expected, sizeof(expected), "%s/there", scratch);
    assert_int_equal(path_resolve(root, scratch, "/data/../there", path), 0);
    assert_string_equal(path, expected);
    assert_int_equal(path_resolve(root, scratch, "/nowhere/new", path), -ENOENT);
    close(root);
}

static mode_t current_umask(void)
{
    mode_t mask = umask(0);

    (void)umask(mask);
    return mask;
}

static void makes_directories(void **state)
{
    struct stat st;
    char *longest = malloc(PATH_MAX + 2);
    int root;

    assert_int_equal(path_open_root(scratch, &root), 0);
    assert_int_equal(path_make_directories(root, "/run//a/b/", 0700), 0);
    assert_int_equal(path_make_directories(root, "/run/a/b/c", 0750), 0);
    assert_int_equal(fstatat(directory, "run/a/b", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0700);
    assert_int_equal(fstatat(directory, "run/a", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFDIR | (0755 & ~current_umask()));
    assert_int_equal(fstatat(directory, "run/a/b/c", &st, 0), 0);
    assert_int_equal(symlinkat("/run", directory, "var"), 0);
    assert_int_equal(path_make_directories(root, "/var/d", 0700), 0);
    assert_int_equal(fstatat(directory, "run/d", &st, 0), 0);
    make_file("file", "", 0600);
    assert_int_equal(path_make_directories(root, "/file/x", 0700), -ENOTDIR);
    assert_int_equal(symlinkat("/nowhere", directory, "dangling"), 0);
    assert_int_equal(path_make_directories(root, "/dangling/x", 0700), -ENOENT);
    memset(longest, 'a', PATH_MAX + 1);
    longest[PATH_MAX + 1] = '\0';
    assert_int_equal(path_make_directories(root, longest, 0700), -ENAMETOOLONG);
    free(longest);
    close(root);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_scratch, remove_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_a_file),
        TEST(refused_files_are_reported_with_the_reason),
        TEST(mode_of_a_file_counts_where_others_can_enter),
        TEST(refuses_a_socket),
        TEST(refuses_a_foreign_owner),
        TEST(refuses_another_mount),
        TEST(opens_directories),
        TEST(links_stay_inside_the_root),
        TEST(reads_kernel_files),
        TEST(identity_sees_a_rewrite),
        TEST(resolves_for_libraries),
        TEST(makes_directories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
