/* SPDX-License-Identifier: Apache-2.0 */
/* container_find_test.c - a container's first process, among others that would like to be taken for
 * it. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include "guest-agent/container_find.h"
#include "tests/unit/guest-agent/container_fixture.h"

static pid_t one, other; /* containers that run */

static int start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    one = other = 0;
    if (!has_mounts)
        return 0;
    show_agent();
    one = start_container(NULL);
    other = start_container(NULL);
    return 0;
}

static int stop(void **state)
{
    if (one)
        stop_process(one);
    if (other)
        stop_process(other);
    return tree_stop(state);
}

static void expect(const char *id, enum container_outcome outcome, pid_t pid)
{
    struct container_place place = {.process = -1};
    struct stat mounts;
    char path[64];

    assert_int_equal(container_find(tree_path("/proc"), id, &place), outcome);
    assert_int_equal(place.process >= 0, outcome == CONTAINER_FOUND);
    if (outcome != CONTAINER_FOUND)
        return;
    fd_close(place.process);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
    assert_int_equal(stat(path, &mounts), 0);
    assert_int_equal(place.mounts, mounts.st_ino);
}

static void a_container_is_found_by_its_cgroup(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    show_process(one, "/kubepods/besteffort/pod7/c1", FIRST);
    show_process(other, "/c2", FIRST);
    expect("c1", CONTAINER_FOUND, one);
    expect("c2", CONTAINER_FOUND, other);
    expect("c", CONTAINER_ABSENT, 0);
    expect("c11", CONTAINER_ABSENT, 0);
    hide_process(one);
    expect("c1", CONTAINER_ABSENT, 0);
}

/* Of a container whose containers share a pid namespace, and one that a client ran in it. */
static void any_child_of_the_agents_is_better_than_none(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    show_process(other, "/c1", "1\nNSpid:\t101\t7");
    expect("c1", CONTAINER_FOUND, other);
    show_process(one, "/c1", FIRST);
    expect("c1", CONTAINER_FOUND, one);
}

static void names_of_other_cgroups_are_no_container(void **state)
{
    static const struct {
        const char *path;
        bool is_it;
    } paths[] = {
        {"/c-1", true},
        {"c-1", true},
        {"/x/c-1/below", true},
        {"/system.slice/cri-containerd-c-1.scope", true},
        {"/c-1.scope", true},
        {"/", false},
        {"", false},
        {"/c-11", false},
        {"/xc-1", false},
        {"/a-c-1.scope", false},
        {"/c-1.slice", false},
        {"/cri-containerd-c-1", false},
    };

    (void)state;
    for (size_t i = 0; i < array_length(paths); i++) {
        if (container_has_cgroup(paths[i].path, strlen(paths[i].path), "c-1") != paths[i].is_it)
            fail_msg("%s", paths[i].path);
    }
}

/* A container's own child, in a cgroup that the container has called after another one. */
static void a_containers_child_is_not_taken_for_another_container(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    tree_make("/proc/77/ns"); /* in a pid namespace that is not the agent's */
    tree_write("/proc/77/ns/pid", "");
    show_process(one, "/c1/c2", "77\nNSpid:\t102\t1");
    expect("c2", CONTAINER_ABSENT, 0);
    show_process(other, "/c2", FIRST);
    expect("c2", CONTAINER_FOUND, other);
}

static void two_that_claim_one_name_are_refused(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    show_process(one, "/c1/c2", FIRST);
    show_process(other, "/c2", FIRST);
    expect("c2", CONTAINER_AMBIGUOUS, 0);
    expect("c1", CONTAINER_FOUND, one);
}

/* The guest's own processes have the agent's mounts. */
static void a_process_with_the_agents_mounts_is_no_container(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    show_process(getpid(), "/c3", FIRST);
    expect("c3", CONTAINER_ABSENT, 0);
}

#define FIND(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIND(a_container_is_found_by_its_cgroup),
        FIND(any_child_of_the_agents_is_better_than_none),
        FIND(names_of_other_cgroups_are_no_container),
        FIND(a_containers_child_is_not_taken_for_another_container),
        FIND(two_that_claim_one_name_are_refused),
        FIND(a_process_with_the_agents_mounts_is_no_container),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
