/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_api_test.c - bundles in both of containerd's layouts and under both runtimes; and bundles
 * that cannot be read, which are the sandbox's problem. */
#define ID "5b0ca1ab0123456789abcdef0123456789abcdef0123456789abcdef01234567"

#include "tests/unit/observe/kata_rs_fixture.h"

#define CONTROLLERS "io.containerd.sandbox.controller.v1.shim/k8s.io"
#define TASK        "io.containerd.runtime.v2.task/k8s.io"
#define OTHER       "0ddba11e0123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define CONFIG      TASKS "/" CONTAINER "/config.json"

static const char *const containerds[] = {"/run/containerd", "/run/k3s/containerd"};

struct node {
    const char *containerd;
    bool is_go, is_apart;
    char own[160], tasks[96], container[192];
};

/* A sandbox that lives, and its shim; no container yet. */
static void start_sandbox(struct node *node)
{
    pid_t vmm;

    (void)snprintf(node->own, sizeof(node->own), "%s/%s/" ID, node->containerd,
                   node->is_apart ? CONTROLLERS : TASK);
    (void)snprintf(node->tasks, sizeof(node->tasks), "%s/" TASK, node->containerd);
    (void)snprintf(node->container, sizeof(node->container), "%s/" CONTAINER, node->tasks);
    make_directory(node->own);
    if (!node->is_apart)
        write_bundle(node->own, ID, "");
    (void)start_process(node->own, "containerd-shim-kata-v2", "-id", ID, NULL);
    vmm = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    make_directory(node->is_go ? "/run/vc/vm/" ID : STATE);
    if (node->is_go)
        write_pid("/run/vc/vm/" ID "/pid", vmm);
}

static void start_layout(struct node *node, unsigned number)
{
    *node = (struct node){
        .containerd = containerds[number & 1], .is_go = number & 2, .is_apart = number & 4};
    start_sandbox(node);
}

static void end_layout(void)
{
    stop_processes();
    paths.bundle_directories = 0;
    assert_int_equal(scratch_directory_remove(scratch), 0);
    assert_int_equal(mkdir(scratch, 0700), 0);
    fd_close(paths.root);
    assert_int_equal(path_open_root(scratch, &paths.root), 0);
}

static void expect_volume(const struct node *node)
{
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.runtime, node->is_go ? RUNTIME_KATA_GO : RUNTIME_KATA_RS);
    assert_int_equal(sandbox.claims, 1);
    assert_string_equal(sandbox.claim[0].path, VOLUME);
    assert_string_equal(sandbox.bundles, node->tasks);
    assert_string_equal(sandbox.pod_name, "web");
    assert_null(sandbox.problem);
}

static void a_later_container_is_found_in_each_layout(void **state)
{
    struct node node;

    for (unsigned i = 0; i < 8; i++) {
        start_layout(&node, i);
        observe();
        assert_int_equal(sandbox.claims, 0);
        assert_string_equal(sandbox.bundles, node.tasks);
        assert_null(sandbox.problem);
        write_bundle(node.container, ID, MOUNT(VOLUME, "/data"));
        assert_int_equal(observe_whole(ID), OBSERVED);
        assert_int_equal(sandbox.claims, 1);
        expect_volume(&node);
        end_layout();
    }
}

/* Of a shim in another mount namespace the working directory is not to be found. */
static void a_configured_directory_may_be_either(void **state)
{
    static char configured[256];
    static const char *const bundles[] = {configured};
    struct node node;

    for (unsigned i = 0; i < 16; i++) {
        start_layout(&node, i % 8);
        stop_processes();
        (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
        write_bundle(node.container, ID, MOUNT(VOLUME, "/data"));
        if (node.is_go)
            write_pid("/run/vc/vm/" ID "/pid",
                      start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL));
        else
            (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
        observe();
        assert_int_equal(sandbox.claims, 0);
        assert_non_null(strstr(sandbox.problem, "no bundle of it is found where its shim works"));
        assert_true(sandbox.hides_volumes);
        (void)snprintf(configured, sizeof(configured), "%s/%s", node.containerd,
                       i >= 8 && node.is_apart ? CONTROLLERS : TASK);
        paths.bundles = bundles;
        paths.bundle_directories = 1;
        expect_volume(&node);
        end_layout();
    }
}

/* ctr run --sandbox: no annotation. */
static void the_file_sandbox_names_it(void **state)
{
    struct node node;

    start_layout(&node, 4);
    write_bundle(node.container, NULL, MOUNT(VOLUME, "/data"));
    observe();
    assert_int_equal(sandbox.claims, 0);
    write_file(TASKS "/" CONTAINER "/sandbox", ID);
    observe();
    assert_int_equal(sandbox.claims, 1);
}

/* ---- bundles that cannot be read ------------------------------------------------------------- */

static void put_large(void)
{
    assert_int_equal(truncate(in_scratch(CONFIG), 64 * 1024 * 1024), 0);
}

static void put_writable(void)
{
    assert_int_equal(chmod(in_scratch(TASKS "/" CONTAINER), 0711), 0);
    assert_int_equal(chmod(in_scratch(CONFIG), 0666), 0);
}

static void put_twice(void)
{
    write_file(CONFIG, "{\"mounts\":[],\"Mounts\":[]}");
}

static void put_linked(void)
{
    assert_int_equal(linkat(AT_FDCWD, in_scratch(CONFIG), paths.root, "other", 0), 0);
}

static void put_cut(void)
{
    write_file(CONFIG, "{\"mounts\":[");
}

static void each_fault_is_the_problem_and_names_the_file(void **state)
{
    static const struct {
        void (*put)(void);
        const char *text;
    } faults[] = {
        {put_large, " bytes"},        {put_writable, "is writable by others than its owner"},
        {put_twice, "config.json: "}, {put_linked, "has several hard links"},
        {put_cut, "config.json: "},
    };
    struct node node;

    for (unsigned i = 0; i < 8 * array_length(faults); i++) {
        start_layout(&node, (i % 8) & ~1U);
        write_bundle(node.container, ID, MOUNT(VOLUME, "/data"));
        expect_volume(&node);
        faults[i / 8].put();
        observe();
        assert_true(sandbox.alive);
        assert_int_equal(sandbox.claims, 0);
        assert_true(sandbox.hides_volumes);
        assert_non_null(strstr(sandbox.problem, "which volumes it has is not known: " CONFIG));
        assert_non_null(strstr(sandbox.problem, faults[i / 8].text));
        (void)unlink(in_scratch(CONFIG)); /* it is mended */
        assert_int_equal(chmod(in_scratch(TASKS "/" CONTAINER), 0700), 0);
        write_bundle(node.container, ID, MOUNT(VOLUME, "/data"));
        assert_int_equal(observe_whole(ID), OBSERVED);
        assert_int_equal(sandbox.claims, 1);
        assert_null(sandbox.problem);
        end_layout();
    }
}

/* By what Kata's shim and containerd write beside config.json. */
static void a_fault_is_its_own_sandboxs(void **state)
{
    struct node node;

    start_layout(&node, 4);
    write_bundle(node.container, ID, "");
    write_bundle(TASKS "/" OTHER, ID, MOUNT(VOLUME, "/data"));
    put_twice();
    write_file(TASKS "/" CONTAINER "/sandbox", OTHER);
    observe();
    assert_null(sandbox.problem);
    write_file(TASKS "/" CONTAINER "/sandbox", ID);
    observe();
    assert_non_null(sandbox.problem);
    assert_int_equal(sandbox.claims, 1);
    assert_int_equal(unlink(in_scratch(TASKS "/" CONTAINER "/sandbox")), 0);
    write_file("/run/containerd/" CONTROLLERS "/" ID "/address", "unix:///run/containerd/s/1");
    observe(); /* its shim has not been told of the container yet */
    assert_null(sandbox.problem);
    write_file(TASKS "/" CONTAINER "/address", "unix:///run/containerd/s/2");
    observe();
    assert_null(sandbox.problem);
    write_file(TASKS "/" CONTAINER "/address", "unix:///run/containerd/s/1");
    observe();
    assert_non_null(strstr(sandbox.problem, CONFIG));
}

static void a_bundle_without_config_is_the_problem(void **state)
{
    struct node node;

    start_layout(&node, 0);
    assert_int_equal(unlink(in_scratch(TASKS "/" ID "/config.json")), 0);
    observe();
    assert_non_null(strstr(sandbox.problem, TASKS "/" ID "/config.json: no such file"));
    assert_true(sandbox.try_again);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_later_container_is_found_in_each_layout),
        TEST(a_configured_directory_may_be_either),
        TEST(the_file_sandbox_names_it),
        TEST(each_fault_is_the_problem_and_names_the_file),
        TEST(a_fault_is_its_own_sandboxs),
        TEST(a_bundle_without_config_is_the_problem),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
