/* SPDX-License-Identifier: Apache-2.0 */
/* share_test.c - a helper's directory in a sandbox's share: made, found, removed, and nothing else;
 * also while the sandbox's VMM or virtiofsd writes there. That writer acts once, between two system
 * calls of share.c. */
#include "tests/unit/tree.h"

#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "reconciler/helper/helper.h"

#define NAME      "crust-0123456789abcdef"
#define SECRET    "a secret of the node's"
#define ID        "aaaa"
#define SANDBOXES "/run/kata-containers/shared/sandboxes/"

static struct {
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

static void set_writer(void (*act)(void), const char *after_making, const char *after_creating,
                       const char *before_removing)
{
    writer.act = act;
    writer.after_making = after_making;
    writer.after_creating = after_creating;
    writer.before_removing = before_removing;
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
    memset(&writer, 0, sizeof(writer));
    assert_int_equal(tree_start(state), 0);
    tree_make(SANDBOXES ID "/mounts");
    tree_make(SANDBOXES ID "/rw/passthrough");
    assert_int_equal(helper_share_open(root, RUNTIME_KATA_GO, ID, &test.share, NULL),
                     HELPER_SHARE_OK);
    test.program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(test.share >= 0 && test.program >= 0);
    return 0;
}

static int tear_down(void **state)
{
    fd_close(test.share);
    fd_close(test.program);
    return tree_stop(state);
}

/* ---- placing ----------------------------------------------------------------------------- */

static void exchange_for_link(void)
{
    assert_int_equal(unlinkat(test.share, NAME, AT_REMOVEDIR), 0);
    link_to("victim", NAME);
}

static void directory_exchanged_for_a_link_is_not_followed(void **state)
{
    make_directory("victim", 0700);
    set_writer(exchange_for_link, NAME, NULL, NULL);
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
    make_directory("private", 0700);
    set_writer(exchange_for_directory, NAME, NULL, NULL);
    (void)place();
    assert_int_equal(mode_of(NAME), S_IFDIR | 0700);
}

static void rename_for_victim(void)
{
    move(NAME, "away");
    move("victim", NAME);
}

/* The directory that was opened goes on being filled. */
static void directory_that_takes_the_name_is_not_filled(void **state)
{
    make_victim();
    set_writer(rename_for_victim, NULL, "agent", NULL);
    assert_int_equal(place(), 0);
    assert_victim_is_untouched(NAME);
    assert_true(exists("away/agent"));
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

    write_file("file");
    for (size_t i = 0; i < array_length(acts); i++) {
        set_writer(acts[i], NAME, NULL, NULL);
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

    write_file("file");
    for (size_t i = 0; i < array_length(acts); i++) {
        set_writer(acts[i], NULL, "agent", NULL);
        assert_int_equal(place(), 0);
        assert_untouched_file("file");
        assert_int_equal(mode_of("away"), S_IFREG | 0555);
        assert_int_equal(unlinkat(test.share, NAME "/agent", 0), 0);
        assert_int_equal(helper_share_remove(test.share, NAME), 0);
    }
}

static void modes_do_not_depend_on_the_umask(void **state)
{
    static const mode_t masks[] = {0077, 0};

    for (size_t i = 0; i < array_length(masks); i++) {
        mode_t before = umask(masks[i]);
        int r = place();

        assert_int_equal(umask(before), masks[i]);
        assert_int_equal(r, 0);
        assert_int_equal(mode_of(NAME), S_IFDIR | 0755);
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
    assert_int_equal(place(), 0);
    make_directory(NAME "/proc", 0755); /* as version 0.2 */
    set_writer(add_file_in_proc, NULL, NULL, "proc");
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_untouched_file(NAME "/proc/file");
    assert_int_equal(unlinkat(test.share, NAME "/proc/file", 0), 0);
    set_writer(add_file, NULL, NULL, NAME);
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_untouched_file(NAME "/file");
}

static void remove_proc(void)
{
    assert_int_equal(unlinkat(test.share, NAME "/proc", AT_REMOVEDIR), 0);
}

static void names_removed_meanwhile_do_not_matter(void **state)
{
    assert_int_equal(place(), 0);
    make_directory(NAME "/proc", 0755);
    set_writer(remove_proc, NULL, NULL, "proc");
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
    make_victim();
    assert_int_equal(place(), 0);
    set_writer(rename_for_link, NULL, NULL, "agent");
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTDIR);
    assert_victim_is_untouched("victim");
    assert_int_equal(mode_of(NAME) & S_IFMT, S_IFLNK);
    put_it_back();

    set_writer(rename_for_file, NULL, NULL, "agent");
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTDIR);
    assert_untouched_file(NAME);
    put_it_back();

    set_writer(rename_for_victim, NULL, NULL, "agent");
    assert_int_equal(helper_share_remove(test.share, NAME), -ENOTEMPTY);
    assert_victim_is_untouched(NAME);
}

/* A socket or a FIFO under the program's name has another purpose. */
static void only_a_file_is_removed_as_the_program(void **state)
{
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
    make_victim();
    link_to("victim", NAME);
    assert_int_equal(helper_share_has(test.share, NAME), HELPER_SHARE_HAS_NOT);
    assert_true(helper_share_remove(test.share, NAME) < 0);
    assert_true(place() < 0);
    assert_victim_is_untouched("victim");
}

static int count(void *userdata, const char *name)
{
    unsigned *calls = userdata;

    return ++*calls == 4 ? -EINTR : 0;
}

static int count_all(void *userdata, const char *name)
{
    ++*(unsigned *)userdata;
    return 0;
}

static void names_are_bounded(void **state)
{
    enum { MANY = 5000, READ = 4096 };
    unsigned some = 0, all = 0;

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

static void a_helper_is_placed_whole_and_removed(void **state)
{
    struct stat placed, own;
    struct error error;

    assert_int_equal(helper_share_place(test.share, NAME, test.program, &error), 0);
    assert_int_equal(fstatat(test.share, NAME "/agent", &placed, 0), 0);
    assert_int_equal(fstat(test.program, &own), 0);
    assert_int_equal(placed.st_size, own.st_size);
    assert_int_equal(placed.st_mode & 0777, 0555);
    for (const char *const *name = (const char *const[]){"proc", "sys", "dev", "vol", NULL}; *name;
         name++) {
        char path[64]; /* as version 0.2 made it */

        (void)snprintf(path, sizeof(path), NAME "/%s", *name);
        assert_int_equal(mkdirat(test.share, path, 0755), 0);
    }
    assert_int_equal(helper_share_remove(test.share, NAME), 0);
    assert_int_equal(fstatat(test.share, NAME, &placed, 0), -1);
    assert_int_equal(helper_share_remove(test.share, NAME), 0); /* there is none */
}

static void the_directory_of_a_drive_is_found_by_its_serial(void **state)
{
    static const char serial[] = "crust-abcdefghijk237";
    static const char *const others[] = {"crust-abcdefghijk2377", "crust-abcdefghijk236.1"};
    char name[HELPER_NAME_BYTES], found[HELPER_NAME_BYTES], other[HELPER_NAME_BYTES];

    for (size_t i = 0; i < array_length(others); i++)
        assert_int_equal(mkdirat(test.share, others[i], 0755), 0);
    assert_int_equal(helper_share_find_drive(test.share, serial, found), HELPER_SHARE_HAS_NOT);
    assert_int_equal(helper_share_name_drive(serial, name), 0);
    assert_int_equal(helper_share_name_drive(serial, other), 0);
    assert_string_not_equal(name, other);
    assert_false(helper_name_is_ours(name));
    for (unsigned i = 0; i < 2; i++) {
        const char *wanted = i ? serial : name; /* the former of version 0.2 */

        assert_int_equal(mkdirat(test.share, wanted, 0755), 0);
        assert_int_equal(helper_share_find_drive(test.share, serial, found), HELPER_SHARE_HAS);
        assert_string_equal(found, wanted);
        assert_int_equal(helper_share_remove(test.share, found), 0);
    }
}

static void existing_files_are_never_taken_over(void **state)
{
    struct stat st;
    struct error error;

    assert_int_equal(mkdirat(test.share, NAME, 0755), 0);
    assert_int_equal(helper_share_place(test.share, NAME, test.program, &error), -EEXIST);
    assert_int_equal(fstatat(test.share, NAME, &st, 0), 0);
    assert_int_equal(fstatat(test.share, NAME "/agent", &st, 0), -1);
}

static void each_runtime_has_its_place(void **state)
{
    char path[HELPER_GUEST_PATH_BYTES];
    struct error error;
    int fd = -1;

    helper_share_guest_path(RUNTIME_KATA_GO, NAME, path);
    assert_string_equal(path, "/run/kata-containers/shared/containers/" NAME);
    helper_share_guest_path(RUNTIME_KATA_RS, NAME, path);
    assert_string_equal(path, "/run/kata-containers/shared/containers/passthrough/" NAME);
    assert_int_equal(helper_share_open(root, RUNTIME_KATA_RS, ID, &fd, &error), HELPER_SHARE_OK);
    assert_int_equal(mkdirat(fd, "x", 0755), 0);
    assert_int_equal(
        faccessat(root, "run/kata-containers/shared/sandboxes/" ID "/rw/passthrough/x", F_OK, 0),
        0);
    (void)close(fd);
}

/* Before the sandbox's first container. */
static void a_share_of_the_rust_runtime_may_come_later(void **state)
{
    struct error error;
    int fd = -1;

    tree_make(SANDBOXES "early/rw");
    assert_int_equal(helper_share_open(root, RUNTIME_KATA_RS, "early", &fd, &error),
                     HELPER_SHARE_LATER);
    assert_int_equal(helper_share_open(root, RUNTIME_KATA_GO, "early", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_int_equal(helper_share_open(root, RUNTIME_KATA_RS, "none", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_int_equal(fd, -1);
}

static int note(void *userdata, const char *name)
{
    (void)snprintf(userdata, HELPER_NAME_BYTES, "%s", name);
    return 0;
}

static void only_names_of_ours_are_found(void **state)
{
    static const char *const others[] = {
        "crust-",
        "crust-0123456789abcde",
        "crust-0123456789abcdef0",
        "crust-0123456789abcdeg",
        "crust-0123456789ABCDEF",
        "0123-resolv.conf",
    };
    char found[HELPER_NAME_BYTES] = "", first[HELPER_NAME_BYTES], second[HELPER_NAME_BYTES];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(helper_name_is_ours(others[i]));
        assert_int_equal(mkdirat(test.share, others[i], 0755), 0);
    }
    assert_int_equal(helper_share_each(test.share, note, found), 0);
    assert_string_equal(found, "");
    assert_int_equal(helper_name_make(first), 0);
    assert_int_equal(helper_name_make(second), 0);
    assert_true(helper_name_is_ours(first));
    assert_string_not_equal(first, second);
    assert_int_equal(mkdirat(test.share, first, 0755), 0);
    assert_int_equal(helper_share_each(test.share, note, found), 0);
    assert_string_equal(found, first);
}

/* ---- without descriptors ------------------------------------------------------------------ */

/* What crustd cannot open now is not taken for something that is not there. */
static void a_lack_of_descriptors_is_not_taken_for_absence(void **state)
{
    struct config config = {.guest.helper_file = "/proc/self/exe"};
    struct rlimit limit, none;
    struct error error;
    int opened, has, program, fd = -1;

    tree_make(SANDBOXES ID "/mounts/" NAME);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    opened = helper_share_open(root, RUNTIME_KATA_GO, ID, &fd, &error);
    has = helper_share_has(test.share, NAME);
    program = helper_program_open(&config, &fd, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(opened, -EMFILE);
    assert_int_equal(has, -EMFILE);
    assert_int_equal(program, -EMFILE);
    assert_int_equal(helper_share_has(test.share, NAME), 1);
    assert_int_equal(helper_share_has(test.share, "crust-fedcba9876543210"), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(directory_exchanged_for_a_link_is_not_followed),
        TEST(mode_of_a_directory_that_came_in_between_is_left),
        TEST(directory_that_takes_the_name_is_not_filled),
        TEST(existing_program_is_not_written_to),
        TEST(file_that_takes_the_programs_name_is_left),
        TEST(modes_do_not_depend_on_the_umask),
        TEST(names_added_meanwhile_are_left),
        TEST(names_removed_meanwhile_do_not_matter),
        TEST(what_takes_the_name_meanwhile_is_left),
        TEST(only_a_file_is_removed_as_the_program),
        TEST(link_is_no_helper),
        TEST(names_are_bounded),
        TEST(a_helper_is_placed_whole_and_removed),
        TEST(the_directory_of_a_drive_is_found_by_its_serial),
        TEST(existing_files_are_never_taken_over),
        TEST(each_runtime_has_its_place),
        TEST(a_share_of_the_rust_runtime_may_come_later),
        TEST(only_names_of_ours_are_found),
        TEST(a_lack_of_descriptors_is_not_taken_for_absence),
    };

    return cmocka_run_group_tests_name("helper_share", tests, NULL, NULL);
}
