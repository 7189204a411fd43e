/* SPDX-License-Identifier: Apache-2.0 */
/* bundles_test.c - more bundles than are read in one go: who asks again gets them all. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "observe/bundles.h"
#include "tests/unit/scratch.h"

/* More than twice of what one question reads, and less than four times. */
enum { MANY = 200, QUESTIONS_AT_MOST = 64 };

/* In place of lib/clock.c: however slow a machine is, no question ends because of its time. */
uint64_t clock_processor(void)
{
    return 1;
}

struct fixture {
    char directory[SCRATCH_BYTES];
    int root;
    struct bundles *bundles;
    struct bundles_place place;
    struct error refused;
};

static int set_up(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){.place = {.parent = "/tasks"}};
    assert_int_equal(scratch_directory_make_below(scratch_memory(), fixture.directory), 0);
    assert_int_equal(path_open_root(fixture.directory, &fixture.root), 0);
    assert_int_equal(mkdirat(fixture.root, "tasks", 0755), 0);
    assert_int_equal(bundles_new("", &fixture.bundles), 0);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    fixture->bundles = bundles_free(fixture->bundles);
    fd_close(fixture->root);
    return scratch_directory_remove(fixture->directory);
}

/* padding: how long the source of its mount is. */
static void put_long_bundle(struct fixture *fixture, const char *prefix, unsigned number,
                            const char *sandbox_id, int padding)
{
    cleanup(fd_closep) int directory = -1;
    static char text[64 * 1024];
    char name[64];

    (void)snprintf(name, sizeof(name), "tasks/%s%u", prefix, number);
    assert_int_equal(mkdirat(fixture->root, name, 0755), 0);
    directory = openat(fixture->root, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(text, sizeof(text),
                   "{\"annotations\":{\"io.kubernetes.cri.sandbox-id\":\"%s\"},\"mounts\":["
                   "{\"source\":\"/v%u/%0*d\",\"destination\":\"/data\"}]}",
                   sandbox_id, number, padding, 0);
    assert_int_equal(path_write_below(directory, "config.json", O_EXCL, 0600, text, strlen(text)),
                     0);
}

static void put_bundle(struct fixture *fixture, const char *prefix, unsigned number,
                       const char *sandbox_id)
{
    put_long_bundle(fixture, prefix, number, sandbox_id, 0);
}

static int count_bundle(void *userdata, const char *container_id, struct bundle *bundle)
{
    unsigned *count = userdata;

    assert_true(container_id[0] != '\0');
    assert_int_equal(bundle->mounts, 1);
    (*count)++;
    return 0;
}

static int ask(struct fixture *fixture, const char *sandbox_id, unsigned *count)
{
    return bundles_each(fixture->bundles, fixture->root, &fixture->place, sandbox_id, count_bundle,
                        count, &fixture->refused);
}

/* Asks until all is told; returns how often. Nothing is told before. */
static unsigned ask_on(struct fixture *fixture, const char *sandbox_id, unsigned expected)
{
    unsigned count = 0;

    for (unsigned questions = 1; questions <= QUESTIONS_AT_MOST; questions++) {
        int r = ask(fixture, sandbox_id, &count);

        if (r == BUNDLES_ALL) {
            assert_int_equal(count, expected);
            return questions;
        }
        assert_int_equal(r, BUNDLES_UNFINISHED);
        assert_int_equal(count, 0);
    }
    fail_msg("asked %d times in vain", QUESTIONS_AT_MOST);
    return 0;
}

/* A place that is cut could be another bundle's. */
static void places_that_do_not_fit_are_refused(void **state)
{
    static char bundle[2 * PATH_MAX];
    struct bundles_place place;

    memset(bundle, 'x', sizeof(bundle) - 1);
    bundle[0] = '/';
    memcpy(bundle + PATH_MAX - 4, "/id", strlen("/id") + 1);
    assert_int_equal(bundles_place_of(bundle, "id", &place), 0);
    memcpy(bundle + PATH_MAX - 4, "x/id", strlen("x/id") + 1);
    assert_true(bundles_place_of(bundle, "id", &place) < 0);
    memcpy(bundle, "/x/id/", strlen("/x/id/"));
    memset(bundle + strlen("/x/id/"), 'x', sizeof(bundle) - 1 - strlen("/x/id/"));
    bundle[PATH_MAX - 1] = '\0';
    assert_int_equal(bundles_place_of(bundle, "id", &place), 0);
    bundle[PATH_MAX - 1] = 'x';
    bundle[PATH_MAX] = '\0';
    assert_true(bundles_place_of(bundle, "id", &place) < 0);
}

static void sandbox_api_keeps_its_bundles_apart(void **state)
{
    static const char *const states[] = {"/run/containerd", "/run/k3s/containerd"};
    struct bundles_place place;
    char path[256];

    for (size_t i = 0; i < array_length(states); i++) {
        (void)snprintf(path, sizeof(path), "%s/io.containerd.sandbox.controller.v1.shim/k8s.io/5a",
                       states[i]);
        assert_int_equal(bundles_place_of(path, "5a", &place), 0);
        assert_string_equal(place.own, path);
        (void)snprintf(path, sizeof(path), "%s/io.containerd.runtime.v2.task/k8s.io", states[i]);
        assert_string_equal(place.parent, path);
        assert_string_equal(place.rest, "");
        assert_true(place.is_apart);
        (void)snprintf(path, sizeof(path), "%s/io.containerd.runtime.v2.task/k8s.io/5a", states[i]);
        assert_int_equal(bundles_place_of(path, "5a", &place), 0);
        assert_false(place.is_apart);
    }
}

/* 200 of 60 kB are more than is kept between the questions. */
static void result_is_cut_beyond_the_memory_limit(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0, questions = 0;
    int r = BUNDLES_UNFINISHED;

    for (unsigned i = 0; i < MANY; i++)
        put_long_bundle(fixture, "c", i, "a", 60000);
    put_bundle(fixture, "d", 0, "b");
    for (; r == BUNDLES_UNFINISHED && questions < QUESTIONS_AT_MOST; questions++)
        r = ask(fixture, "a", &count);
    assert_int_equal(r, BUNDLES_CUT);
    assert_in_range(count, MANY / 2, MANY - 1);
    (void)ask_on(fixture, "b", 1); /* another sandbox's are whole */
}

/* Each that can't be read is tried once for a question, however often that is asked. */
static void unreadable_bundles_do_not_keep_the_search_going(void **state)
{
    struct fixture *fixture = *state;
    char name[64];

    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "tasks/empty%u", i);
        assert_int_equal(mkdirat(fixture->root, name, 0755), 0);
    }
    put_bundle(fixture, "c", 0, "a");
    assert_true(ask_on(fixture, "a", 1) > 2);
}

/* Whoever can make names there decides how many there are, not how much is kept of them. */
static void containers_beyond_the_limit_are_not_remembered(void **state)
{
    enum { CONTAINERS = 65536 };
    struct fixture *fixture = *state;
    struct observe_cache cache = {.bundles = fixture->bundles};
    const struct observe_sandbox_paths paths = {.root = fixture->root, .cache = &cache};
    char name[64], owner[OBSERVE_SANDBOX_ID_BYTES];
    unsigned count = 0;

    for (unsigned i = 1; i < CONTAINERS; i++) {
        (void)snprintf(name, sizeof(name), "tasks/c%u", i);
        assert_int_equal(mknodat(fixture->root, name, S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(ask(fixture, "a", &count), BUNDLES_UNFINISHED);
    put_bundle(fixture, "last", 0, "a");
    put_bundle(fixture, "beyond", 0, "a");
    assert_int_equal(observe_bundle_owner(&paths, "/tasks", "last0", owner),
                     OBSERVED_OWNER_MAY_CHANGE);
    assert_string_equal(owner, "a");
    assert_true(observe_bundle_owner(&paths, "/tasks", "beyond0", owner) < 0);
    assert_string_equal(owner, "");
}

static void directories_beyond_the_limit_are_left_out(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0;

    put_bundle(fixture, "c", 0, "a");
    assert_int_equal(ask_on(fixture, "a", 1), 1);
    for (unsigned i = 1; i <= BUNDLES_PARENTS; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "/tasks%u", i);
        assert_int_equal(mkdirat(fixture->root, name + 1, 0755), 0);
        memcpy(fixture->place.parent, name, sizeof(name));
        assert_int_equal(ask(fixture, "a", &count),
                         i < BUNDLES_PARENTS ? BUNDLES_ALL : BUNDLES_CUT);
    }
    memcpy(fixture->place.parent, "/tasks", sizeof("/tasks"));
    assert_int_equal(ask_on(fixture, "a", 1), 1); /* as before */
}

#define bundles_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        bundles_test(places_that_do_not_fit_are_refused),
        bundles_test(sandbox_api_keeps_its_bundles_apart),
        bundles_test(result_is_cut_beyond_the_memory_limit),
        bundles_test(unreadable_bundles_do_not_keep_the_search_going),
        bundles_test(containers_beyond_the_limit_are_not_remembered),
        bundles_test(directories_beyond_the_limit_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
