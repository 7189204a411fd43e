/* SPDX-License-Identifier: Apache-2.0 */
/* share_race_test.c - a helper's directory in a share to which the sandbox's VMM or virtiofsd
 * writes at the same time. Each test has that writer act once, between two system calls of share.c.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "reconciler/helper/share.h"
#include "tests/unit/scratch.h"

#define NAME   "crust-0123456789abcdef"
#define SECRET "a secret of the node's"

static struct {
    char directory[SCRATCH_BYTES];
    int share, program;
} test;

/* ---- the writer -------------------------------------------------------------------------- */

static struct {
    void (*act)(void);
    /* The name in the system call; NULL: another one. */
    const char *after_making, *after_creating, *before_removing;
} writer;

static void act_once(void)
{
    void (*act)(void) = writer.act;

    memset(&writer, 0, sizeof(writer));
    act();
}

static void after_making(const char *name, void (*act)(void))
{
    writer.act = act;
    writer.after_making = name;
}

static void after_creating(const char *name, void (*act)(void))
{
    writer.act = act;
    writer.after_creating = name;
}

static void before_removing(const char *name, void (*act)(void))
{
    writer.act = act;
    writer.before_removing = name;
}

/* These stand before the C library's. */
int mkdirat(int directory, const char *name, mode_t mode)
{
    int r = (int)syscall(SYS_mkdirat, directory, name, mode);

    if (r == 0 && writer.after_making && strcmp(name, writer.after_making) == 0)
        act_once();
    return r;
}

int openat(int directory, const char *name, int flags, ...)
{
    va_list arguments;
    mode_t mode;
    int r;

    va_start(arguments, flags);
    mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    r = (int)syscall(SYS_openat, directory, name, flags, mode);
    if (r >= 0 && writer.after_creating && strcmp(name, writer.after_creating) == 0)
        act_once();
    return r;
}

int unlinkat(int directory, const char *name, int flags)
{
    if (writer.before_removing && strcmp(name, writer.before_removing) == 0)
        act_once();
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

static void make_directory(const char *path, mode_t mode)
{
    assert_int_equal(mkdirat(test.share, path, 0700), 0);
    assert_int_equal(fchmodat(test.share, path, mode, 0), 0);
}

static void write_file(const char *path)
{
    assert_int_equal(path_write_below(test.share, path, O_EXCL, 0600, SECRET, sizeof(SECRET) - 1),
                     0);
}

static void move(const char *from, const char *to)
{
    assert_int_equal(renameat(test.share, from, test.share, to), 0);
}

static void link_to(const char *target, const char *path)
{
    assert_int_equal(symlinkat(target, test.share, path), 0);
}

/* ---- what it must not lead to ------------------------------------------------------------ */

static mode_t mode_of(const char *path)
{
    struct stat status;

    assert_int_equal(fstatat(test.share, path, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status.st_mode;
}

static bool exists(const char *path)
{
    struct stat status;

    return fstatat(test.share, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_untouched_file(const char *path)
{
    cleanup(fd_closep) int fd = openat(test.share, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[64] = "";

    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof(text) - 1), sizeof(SECRET) - 1);
    assert_string_equal(text, SECRET);
    assert_int_equal(mode_of(path), S_IFREG | 0600);
}

/* A directory that is not crustd's, with names such as a helper's directory has. */
static void make_victim(void)
{
    make_directory("victim", 0700);
    make_directory("victim/proc", 0700);
    write_file("victim/agent");
}

static void assert_victim_is_untouched(const char *path)
{
    char below[64];

    assert_int_equal(mode_of(path), S_IFDIR | 0700);
    (void)snprintf(below, sizeof(below), "%s/proc", path);
    assert_int_equal(mode_of(below), S_IFDIR | 0700);
    (void)snprintf(below, sizeof(below), "%s/sys", path);
    assert_false(exists(below));
    (void)snprintf(below, sizeof(below), "%s/agent", path);
    assert_untouched_file(below);
}

static int place(void)
{
    struct error error;

    return helper_share_place(test.share, NAME, test.program, &error);
}

static int set_up(void **state)
{
    (void)state;
    memset(&writer, 0, sizeof(writer));
    assert_int_equal(scratch_directory_make(test.directory), 0);
    test.share = open(test.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test.program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(test.share >= 0 && test.program >= 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fd_close(test.share);
    fd_close(test.program);
    return scratch_directory_remove(test.directory);
}

/* ---- placing ----------------------------------------------------------------------------- */

static void exchange_for_link(void)
{
    assert_int_equal(unlinkat(test.share, NAME, AT_REMOVEDIR), 0);
    link_to("victim", NAME);
}

static void directory_exchanged_for_a_link_is_not_followed(void **state)
{
    (void)state;
    make_directory("victim", 0700);
    after_making(NAME, exchange_for_link);
    assert_int_equal(place(), PATH_BEHIND_A_LINK);
    assert_int_equal(mode_of("victim"), S_IFDIR | 0700);
    assert_false(exists("victim/agent"));
    assert_int_equal(mode_of(NAME) & S_IFMT, S_IFLNK);
}

static void exchange_for_directory(void)
{
    move(NAME, "away");
    move("private", NAME);
}

static void mode_of_a_directory_that_came_in_between_is_left(void **state)
{
    (void)state;
    make_directory("private", 0700);
    after_making(NAME, exchange_for_directory);
    (void)place();
    assert_int_equal(mode_of(NAME), S_IFDIR | 0700);
}

static void exchange_mount_point_for_link(void)
{
    assert_int_equal(unlinkat(test.share, NAME "/proc", AT_REMOVEDIR), 0);
    link_to("../victim", NAME "/proc");
}

static void exchange_mount_point_for_directory(void)
{
    move(NAME "/proc", "away");
    move("victim", NAME "/proc");
}

static void exchanged_mount_point_leads_nowhere(void **state)
{
    (void)state;
    make_victim();
    after_making("proc", exchange_mount_point_for_link);
    (void)place();
    assert_victim_is_untouched("victim");
}

static void mode_of_an_exchanged_mount_point_is_left(void **state)
{
    (void)state;
    make_victim();
    after_making("proc", exchange_mount_point_for_directory);
    (void)place();
    assert_victim_is_untouched(NAME "/proc");
}

static void rename_for_victim(void)
{
    move(NAME, "away");
    move("victim", NAME);
}

/* The directory that was opened goes on being filled. */
static void directory_that_takes_the_name_is_not_filled(void **state)
{
    (void)state;
    make_victim();
    after_making("proc", rename_for_victim);
    assert_int_equal(place(), 0);
    assert_victim_is_untouched(NAME);
    assert_true(exists("away/vol"));
}

static void add_hard_link(void)
{
    assert_int_equal(linkat(test.share, "file", test.share, NAME "/agent", 0), 0);
}

static void add_link(void)
{
    link_to("../file", NAME "/agent");
}

static void add_dangling_link(void)
{
    link_to("../new", NAME "/agent");
}

static void existing_program_is_not_written_to(void **state)
{
    static void (*const acts[])(void) = {add_hard_link, add_link, add_dangling_link};

    (void)state;
    write_file("file");
    for (size_t i = 0; i < array_length(acts); i++) {
        after_making(NAME, acts[i]);
        assert_int_equal(place(), PATH_IS_TAKEN);
        assert_untouched_file("file");
        assert_false(exists("new"));
        assert_false(exists(NAME));
    }
}

static void exchange_program_for_hard_link(void)
{
    move(NAME "/agent", "away");
    add_hard_link();
}

static void exchange_program_for_link(void)
{
    move(NAME "/agent", "away");
    add_link();
}

/* The file that was made goes on being filled, and gets its mode. */
static void file_that_takes_the_programs_name_is_left(void **state)
{
    static void (*const acts[])(void) = {exchange_program_for_hard_link, exchange_program_for_link};

    (void)state;
    write_file("file");
    for (size_t i = 0; i < array_length(acts); i++) {
        after_creating("agent", acts[i]);
        assert_int_equal(place(), 0);
        assert_untouched_file("file");
        assert_int_equal(mode_of("away"), S_IFREG | 0555);
        assert_int_equal(unlinkat(test.share, NAME "/agent", 0), 0);
        assert_int_equal(helper_share_remove(test.share, NAME), 0);
    }
}

static void add_file_in_mount_point(void)
{
    make_directory(NAME "/vol", 0700);
    write_file(NAME "/vol/file");
}

static void failed_placing_leaves_only_what_others_made(void **state)
{
    (void)state;
    after_making("dev", add_file_in_mount_point);
    assert_int_equal(place(), PATH_IS_TAKEN);
    assert_untouched_file(NAME "/vol/file");
    assert_false(exists(NAME "/agent"));
    assert_false(exists(NAME "/proc"));
}

static void failed_copy_leaves_nothing(void **state)
{
    (void)state;
    fd_close(test.program);
    test.program = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(place(), PATH_IS_A_DIRECTORY);
    assert_false(exists(NAME));
}

static void modes_do_not_depend_on_the_umask(void **state)
{
    static const mode_t masks[] = {0077, 0};
    static const char *const directories[] = {NAME, NAME "/proc", NAME "/sys", NAME "/dev",
                                              NAME "/vol"};

    (void)state;
    for (size_t i = 0; i < array_length(masks); i++) {
        mode_t before = umask(masks[i]);
        int r = place();

        assert_int_equal(umask(before), masks[i]);
        assert_int_equal(r, 0);
        for (size_t j = 0; j < array_length(directories); j++)
            assert_int_equal(mode_of(directories[j]), S_IFDIR | 0755);
        assert_int_equal(mode_of(NAME "/agent"), S_IFREG | 0555);
        assert_int_equal(helper_share_remove(test.share, NAME), 0);
    }
}

/* ---- removing ---------------------------------------------------------------------------- */

static void add_file_in_proc(void)
{
    write_file(NAME "/proc/file");
}

static void add_file(void)
{
    write_file(NAME "/file");
}

static void names_added_meanwhile_are_left(void **state)
{
    (void)state;
    assert_int_equal(place(), 0);
    before_removing("proc", add_file_in_proc);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_untouched_file(NAME "/proc/file");
    assert_int_equal(unlinkat(test.share, NAME "/proc/file", 0), 0);
    before_removing(NAME, add_file);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_untouched_file(NAME "/file");
}

static void remove_proc(void)
{
    assert_int_equal(unlinkat(test.share, NAME "/proc", AT_REMOVEDIR), 0);
}

static void names_removed_meanwhile_do_not_matter(void **state)
{
    (void)state;
    assert_int_equal(place(), 0);
    before_removing("proc", remove_proc);
    assert_int_equal(helper_share_remove(test.share, NAME), 0);
    assert_false(exists(NAME));
}

static void rename_for_link(void)
{
    move(NAME, "away");
    link_to("victim", NAME);
}

static void rename_for_file(void)
{
    move(NAME, "away");
    write_file(NAME);
}

/* In the place of what an exchange has left. */
static void put_it_back(void)
{
    assert_int_equal(unlinkat(test.share, "away", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(test.share, NAME, 0), 0);
    assert_int_equal(place(), 0);
}

/* The directory that was opened is emptied, wherever it is now; what has its name stays, unless
 * that is an empty directory. */
static void what_takes_the_name_meanwhile_is_left(void **state)
{
    (void)state;
    make_victim();
    assert_int_equal(place(), 0);
    before_removing("agent", rename_for_link);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTDIR);
    assert_victim_is_untouched("victim");
    assert_int_equal(mode_of(NAME) & S_IFMT, S_IFLNK);
    put_it_back();

    before_removing("agent", rename_for_file);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTDIR);
    assert_untouched_file(NAME);
    put_it_back();

    before_removing("agent", rename_for_victim);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_victim_is_untouched(NAME);
}

/* A socket or a FIFO under the program's name has another purpose. */
static void only_a_file_is_removed_as_the_program(void **state)
{
    (void)state;
    make_directory(NAME, 0755);
    assert_int_equal(mkfifoat(test.share, NAME "/agent", 0600), 0);
    assert_int_equal(helper_share_remove(test.share, NAME), PATH_NOT_PERMITTED);
    assert_true(exists(NAME "/agent"));
    assert_int_equal(unlinkat(test.share, NAME "/agent", 0), 0);
    make_directory(NAME "/agent", 0700);
    assert_int_equal(helper_share_remove(test.share, NAME), PATH_IS_A_DIRECTORY);
    assert_true(exists(NAME "/agent"));
}

/* ---- finding ----------------------------------------------------------------------------- */

static void link_is_no_helper(void **state)
{
    (void)state;
    make_victim();
    link_to("victim", NAME);
    assert_int_equal(helper_share_has(test.share, NAME), HELPER_SHARE_HAS_NOT);
}

static int count(void *userdata, const char *name)
{
    unsigned *calls = userdata;

    (void)name;
    return ++*calls == 4 ? -EINTR : 0;
}

static int count_all(void *userdata, const char *name)
{
    (void)name;
    ++*(unsigned *)userdata;
    return 0;
}

static void names_are_bounded(void **state)
{
    enum { MANY = 5000, READ = 4096 };
    unsigned some = 0, all = 0;

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        char name[HELPER_NAME_BYTES];

        (void)snprintf(name, sizeof(name), "crust-%016x", i);
        assert_int_equal(mknodat(test.share, name, S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(helper_share_each(test.share, count_all, &all), 0);
    assert_int_equal(all, READ);
    assert_int_equal(helper_share_each(test.share, count, &some), -EINTR);
    assert_int_equal(some, 4);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(directory_exchanged_for_a_link_is_not_followed),
        TEST(mode_of_a_directory_that_came_in_between_is_left),
        TEST(exchanged_mount_point_leads_nowhere),
        TEST(mode_of_an_exchanged_mount_point_is_left),
        TEST(directory_that_takes_the_name_is_not_filled),
        TEST(existing_program_is_not_written_to),
        TEST(file_that_takes_the_programs_name_is_left),
        TEST(failed_placing_leaves_only_what_others_made),
        TEST(failed_copy_leaves_nothing),
        TEST(modes_do_not_depend_on_the_umask),
        TEST(names_added_meanwhile_are_left),
        TEST(names_removed_meanwhile_do_not_matter),
        TEST(what_takes_the_name_meanwhile_is_left),
        TEST(only_a_file_is_removed_as_the_program),
        TEST(link_is_no_helper),
        TEST(names_are_bounded),
    };

    return cmocka_run_group_tests_name("helper_share_race", tests, NULL, NULL);
}
