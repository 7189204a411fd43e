/* SPDX-License-Identifier: Apache-2.0 */
/* ownership_hostile_test.c - trees that lead out, never end, or change during the walk. */
#include "tests/unit/guest-agent/ownership_fixture.h"

/* ---- hostile trees ---- */

static void links_are_not_followed(void **state)
{
    static const char *const targets[] = {
        "../outside", "../outside/file", "../outside/directory", "/", "..", ".",
        "loop",       "/proc/self/cwd",  "/proc/self/root/etc"};
    struct ownership_result result;
    char name[32];

    (void)state;
    make_outside();
    tree_make("/volume");
    assert_int_equal(symlink(tree_path("/outside"), tree_path("/volume/absolute")), 0);
    for (size_t i = 0; i < array_length(targets); i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        assert_int_equal(symlink(targets[i], tree_path(name)), 0);
    }
    assert_int_equal(symlink("loop", tree_path("/volume/loop")), 0);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    assert_int_equal(result.count.failed, 0);
    assert_int_equal(result.count.changed + result.count.skipped, array_length(targets) + 3);
    assert_int_equal(stat_of("/volume/absolute").st_gid, group);
    check_outside();
}

static void names_and_kinds_of_files_do_not_matter(void **state)
{
    static const char *const names[] = {"/volume/-rf", "/volume/\n",       "/volume/ ",
                                        "/volume/...", "/volume/\xff\xfe", "/volume/\"'\\$(id)",
                                        "/volume/%s%n"};
    struct ownership_result result;
    char longest[9 + 255];

    (void)state;
    tree_make("/volume");
    for (size_t i = 0; i < array_length(names); i++)
        tree_write(names[i], "x");
    memset(longest, 'n', sizeof(longest));
    memcpy(longest, "/volume/", 8);
    longest[8 + 255] = '\0';
    tree_write(longest, "x");
    assert_int_equal(mkfifo(tree_path("/volume/fifo"), 0600), 0);
    assert_int_equal(mknod(tree_path("/volume/socket"), S_IFSOCK | 0600, 0), 0);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_count(&result, array_length(names) + 4, 0, 0);
    for (size_t i = 0; i < array_length(names); i++)
        check_entry(names[i], 0660);
    check_entry(longest, 0660);
    check_entry("/volume/fifo", 0660);
    check_entry("/volume/socket", 0660);
}

/* Makes a chain of directories "d" below the volume; the descriptor is of the last. */
static int make_chain(unsigned depth)
{
    int fd = open(tree_path("/volume"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (unsigned i = 0; i < depth; i++) {
        int next;

        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd_close(fd);
        fd = next;
    }
    assert_true(fd >= 0);
    return fd;
}

/* From its end, because no path leads there: the scratch directory can then be removed. */
static void remove_chain(int last, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        int parent = openat(last, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        fd_close(last);
        assert_int_equal(unlinkat(parent, "d", AT_REMOVEDIR), 0);
        last = parent;
    }
    fd_close(last);
}

static void limit_descriptors(rlim_t limit, struct rlimit *ret_before)
{
    struct rlimit limits;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limits), 0);
    *ret_before = limits;
    limits.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limits), 0);
}

static void a_tree_deeper_than_any_path_is_walked(void **state)
{
    enum { DEPTH = 6000 };
    struct ownership_result result;
    struct rlimit before;
    struct stat status;
    int last;

    (void)state;
    tree_make("/volume");
    last = make_chain(DEPTH);
    limit_descriptors(48, &before);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_count(&result, DEPTH + 1, 0, 0);
    assert_int_equal(fstat(last, &status), 0);
    assert_int_equal(status.st_mode & 07777, 02770);
    remove_chain(last, DEPTH);
}

/* Below the levels that stay open, each directory has enough names for several readings. */
static void listings_of_deep_directories_go_on_where_they_were(void **state)
{
    enum { DEPTH = 24, FILES = 300 };
    struct ownership_result result;
    char path[128] = "/volume", name[160];

    (void)state;
    for (unsigned i = 0; i < DEPTH; i++) {
        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d");
        tree_make(path);
        for (unsigned j = 0; i >= DEPTH - 4 && j < FILES; j++) {
            (void)snprintf(name, sizeof(name), "%s/f%u", path, j);
            tree_write(name, "");
            (void)snprintf(name, sizeof(name), "%s/d%u", path, j);
            assert_int_equal(mkdir(tree_path(name), 0700), 0);
        }
    }
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    assert_int_equal(result.count.failed, 0);
    assert_int_equal(result.count.changed + result.count.skipped,
                     1 + DEPTH + UINT64_C(4) * 2 * FILES);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_count(&result, 0, 1 + DEPTH + UINT64_C(4) * 2 * FILES, 0);
}

struct seen {
    unsigned calls;
    uint64_t last;
};

static bool see_progress(const struct drive_walk_count *count, void *userdata)
{
    struct seen *seen = userdata;
    uint64_t sum = count->changed + count->skipped + count->failed;

    assert_true(sum >= seen->last && sum <= seen->last + OWNERSHIP_REPORT_ENTRIES);
    seen->last = sum;
    seen->calls++;
    return true;
}

static void a_hundred_thousand_entries_with_links_out(void **state)
{
    enum { DIRECTORIES = 200, FILES = 499, ENTRIES = DIRECTORIES * (FILES + 1) + 1 };
    struct ownership_request request = request_for(-1);
    struct ownership_result result;
    struct seen seen = {0};
    struct rlimit before;
    char name[64];

    (void)state;
    make_outside();
    for (unsigned i = 0; i < DIRECTORIES; i++) {
        (void)snprintf(name, sizeof(name), "/volume/%u", i);
        tree_make(name);
        for (unsigned j = 0; j < FILES; j++) {
            (void)snprintf(name, sizeof(name), "/volume/%u/%u", i, j);
            if (j % 50 == 0)
                assert_int_equal(symlink("../../outside/directory", tree_path(name)), 0);
            else
                assert_int_equal(mknod(tree_path(name), S_IFREG | 0600, 0), 0);
        }
    }
    request.report = see_progress;
    request.userdata = &seen;
    limit_descriptors(48, &before);
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_APPLIED);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result.count.failed, 0);
    assert_int_equal(result.count.changed + result.count.skipped, ENTRIES);
    assert_true(result.count.changed >= ENTRIES - 10 * DIRECTORIES);
    assert_true(seen.calls >= ENTRIES / OWNERSHIP_REPORT_ENTRIES);
    check_outside();
}

/* ---- trees that change ---- */

static bool move_once(const struct drive_walk_count *count, void *userdata)
{
    int *moved = userdata;

    (void)count;
    if (*moved)
        return true;
    /* Only once the walk is below the levels that stay open: then it must come back by "..". */
    if (count->changed + count->skipped >= 1) {
        *moved = 1;
        assert_int_equal(rename(tree_path("/volume/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18"),
                                tree_path("/outside/18")),
                         0);
    }
    return true;
}

static void a_directory_that_is_moved_away_does_not_lead_out(void **state)
{
    struct ownership_request request = request_for(-1);
    struct ownership_result result;
    int moved = 0;

    (void)state;
    make_outside();
    tree_make("/volume/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21");
    assert_int_equal(chmod(tree_path("/volume"), 0700), 0);
    request.report = move_once;
    request.userdata = &moved;
    request.report_entries = 1;
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_INCOMPLETE);
    assert_int_equal(moved, 1);
    assert_int_equal(result.count.failed, 1);
    assert_non_null(strstr(result.errors[0].text, "/outside/18"));
    assert_int_equal(stat_of("/volume").st_mode & 07777, 0700); /* to be walked again */
    check_entry("/volume/1/2", 02775);
    assert_int_equal(rename(tree_path("/outside/18"), tree_path("/volume/18")), 0);
    check_outside();
}

/* A process that makes /volume/x a directory, and a link out, in turns. */
static pid_t start_swapping(void)
{
    pid_t process = fork();

    if (process == 0) {
        for (;;)
            (void)syscall(SYS_renameat2, root, "volume/x", root, "volume/y", 2 /* EXCHANGE */);
    }
    assert_true(process > 0);
    return process;
}

static void a_directory_that_is_swapped_with_a_link_is_not_followed(void **state)
{
    struct ownership_result result;
    pid_t swapper;

    (void)state;
    make_outside();
    tree_make("/volume/x/directory");
    tree_write("/volume/x/file", "x");
    assert_int_equal(symlink("../outside", tree_path("/volume/y")), 0);
    swapper = start_swapping();
    for (unsigned i = 0; i < 2000; i++) {
        int r = apply_to("/volume", request_for(-1), &result);

        assert_true(r == OWNERSHIP_APPLIED || r == OWNERSHIP_INCOMPLETE);
        assert_int_equal(chmod(tree_path("/volume"), 0700), 0);
    }
    assert_int_equal(kill(swapper, SIGKILL), 0);
    assert_int_equal(waitpid(swapper, NULL, 0), swapper);
    check_outside();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(links_are_not_followed),
        TEST(names_and_kinds_of_files_do_not_matter),
        TEST(a_tree_deeper_than_any_path_is_walked),
        TEST(listings_of_deep_directories_go_on_where_they_were),
        TEST(a_hundred_thousand_entries_with_links_out),
        TEST(a_directory_that_is_moved_away_does_not_lead_out),
        TEST(a_directory_that_is_swapped_with_a_link_is_not_followed),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
