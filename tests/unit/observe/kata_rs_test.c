/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs_test.c - what is read of a sandbox of runtime-rs: /run/kata, bundles, processes. */
#define ID "5ca1ab1e0123456789abcdef0123456789abcdef0123456789abcdef01234567"

#include "tests/unit/observe/kata_rs_fixture.h"

#include <sys/stat.h>
#include <time.h>

#include "tests/unit/observe/hanging_reader.h"

#define OTHER  "deadbeef0123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define SHARED "/run/kata-containers/shared/sandboxes/" ID "/rw/passthrough"
#define GUEST  "/run/kata-containers/shared/containers/passthrough/"

static void share(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), SHARED "/%s", name);
    make_directory(path);
}

/* Any name may be there, because VMM and virtiofsd write to this directory. */
static void a_crowded_share_tells_of_no_guest_path(void **state)
{
    char name[64];

    start_qemu(TASKS);
    share("0123456789-89abcdef-data");
    for (unsigned i = 0; i < 2048; i++) {
        (void)snprintf(name, sizeof(name), "%010x-89abcdef-other", i);
        share(name);
        if (i == 2046) {
            observe();
            assert_string_equal(sandbox.claim[1].guest_path, GUEST "0123456789-89abcdef-data");
        }
    }
    observe();
    assert_null(sandbox.claim[1].guest_path);
}

static void paths_that_do_not_fit_are_not_cut(void **state)
{
    static char sandboxes[PATH_MAX], text[PATH_MAX + 512];
    struct observed_sandbox other = {0};

    start_qemu(TASKS);
    (void)snprintf(text, sizeof(text),
                   "{\"mounts\":[{\"source\":\"/%0*d\",\"destination\":\"/a\"}," MOUNT(
                       VOLUME, "/b") "],\"annotations\":{\"io.kubernetes.cri.sandbox-id\":\"" ID
                                     "\"}}",
                   PATH_MAX - 1, 1);
    write_file(TASKS "/" CONTAINER "/config.json", text);
    observe();
    assert_int_equal(sandbox.claims, 1);
    assert_string_equal(sandbox.claim[0].path, VOLUME);
    memset(sandboxes, '/', sizeof(sandboxes) - 1);
    paths.kata_rs_sandboxes = sandboxes;
    assert_true(observe_sandbox(&paths, ID, &other) < 0);
}

static void stop_first_process(void)
{
    (void)kill(process[0], SIGKILL);
    (void)waitpid(process[0], NULL, 0);
    memmove(process, process + 1, --processes * sizeof(*process));
}

/* What was read before stays. */
static void observe_again(void)
{
    assert_int_equal(observe_whole(ID), OBSERVED);
}

/* The shim was killed: QEMU has the same working directory, and was the shim's before. */
static void finds_the_bundle_by_qemu(void **state)
{
    start_qemu(TASKS);
    observe();
    stop_first_process();
    observe_again();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 2);
}

static void expect_guest_path(const char *name)
{
    observe();
    assert_string_equal(sandbox.claim[sandbox.claims - 1].path, VOLUME);
    if (name)
        assert_string_equal(sandbox.claim[sandbox.claims - 1].guest_path, name);
    else
        assert_null(sandbox.claim[sandbox.claims - 1].guest_path);
}

static void set_age(const char *name, int hours_ago)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = time(NULL) - 3600L * hours_ago}};

    assert_int_equal(utimensat(AT_FDCWD, in_scratch(name), times, 0), 0);
}

/* The shim leaves the directory of a container that has ended; the next one gets another device. */
static void tells_the_directory_of_a_container_that_has_ended(void **state)
{
    start_qemu(TASKS);
    share("0123456789-89abcdef-data");
    set_age(SHARED "/0123456789-89abcdef-data", 3);
    expect_guest_path(NULL);
    share("aaaaaaaaaa-89abcdef-data");
    expect_guest_path(GUEST "aaaaaaaaaa-89abcdef-data");
    set_age(TASKS "/" CONTAINER "/config.json", 4);
    expect_guest_path(NULL);
    share("0123456789-00000000-data"); /* of another container, which restarted */
    set_age(SHARED "/aaaaaaaaaa-89abcdef-data", 5);
    expect_guest_path(GUEST "0123456789-89abcdef-data");
    write_bundle(TASKS "/" OTHER, ID, MOUNT(VOLUME, "/data"));
    expect_guest_path(GUEST "0123456789-89abcdef-data");
    set_age(TASKS "/" CONTAINER "/config.json", 2);
    expect_guest_path(GUEST "0123456789-00000000-data");
}

static void mistrusts_a_destination_that_ends_alike(void **state)
{
    start_qemu(TASKS);
    share("0123456789-89abcdef-data");
    write_bundle(TASKS "/" OTHER, ID, MOUNT("/a", "/data"));
    expect_guest_path(NULL);
    write_bundle(TASKS "/" OTHER, ID, MOUNT("/a", "/data") "," MOUNT(VOLUME, "/plain"));
    share("0123456789-89abcdef-plain");
    expect_guest_path(GUEST "0123456789-89abcdef-plain");
}

static void reads_the_other_vmms(void **state)
{
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "cloud-hypervisor", "--api-socket", STATE "/ch-api.sock", NULL);
    make_socket(STATE, "ch-api.sock");
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_CLOUD_HYPERVISOR);
    assert_string_equal(sandbox.control_socket, STATE "/ch-api.sock");
    assert_string_equal(sandbox.agent_address, "hvsock://" STATE "/ch-vm.sock:1024");
    stop_processes();

    write_file(STATE "/state.json", "{\"hypervisor\":{\"hypervisor_type\":\"dragonball\"}}");
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_DRAGONBALL);
    assert_string_equal(sandbox.agent_address, "hvsock://" STATE "/root/kata.hvsock:1024");
    stop_processes();

    make_directory("/run/kata/firecracker/" ID "/root/run");
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "firecracker", "--id", ID, NULL);
    make_socket("/run/kata/firecracker/" ID "/root/run", "fc.sock");
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_FIRECRACKER);
    assert_string_equal(sandbox.control_socket, "/run/kata/firecracker/" ID "/root/run/fc.sock");
    assert_string_equal(sandbox.agent_address,
                        "hvsock:///run/kata/firecracker/" ID "/root/kata.hvsock:1024");
}

static void survives_a_bad_state(void **state)
{
    start_qemu(TASKS);
    write_file(STATE "/state.json", "{\"hypervisor\":");
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_QEMU);
    assert_non_null(sandbox.problem);
}

/* A jailed VMM may write to its root directory, and crustd may read every file of the node. */
static void state_that_the_vmm_could_have_made_is_not_read(void **state)
{
    static const char *const jail = "/run/kata/firecracker/" ID "/root";
    static const char text[] = "{\"hypervisor\":{\"hypervisor_type\":\"qemu\"}}";
    char path[128], link[128];

    (void)snprintf(path, sizeof(path), "%s/state.json", jail);
    (void)snprintf(link, sizeof(link), "%s/elsewhere.json", jail);
    make_directory(jail);
    write_file("/elsewhere.json", text);
    assert_int_equal(symlink("/elsewhere.json", in_scratch(path)), 0);
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_UNKNOWN);
    assert_string_equal(sandbox.problem, "state.json: is or lies behind a symbolic link");
    assert_int_equal(unlink(in_scratch(path)), 0);
    write_file(path, text);
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_QEMU);
    assert_null(sandbox.problem);
    assert_int_equal(chmod(in_scratch(path), 0606), 0);
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_UNKNOWN);
    assert_string_equal(sandbox.problem, "state.json: is writable by others than its owner");
    assert_int_equal(chmod(in_scratch(path), 0600), 0);
    assert_int_equal(linkat(paths.root, path + 1, paths.root, link + 1, 0), 0);
    observe();
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_UNKNOWN);
    assert_string_equal(sandbox.problem, "state.json: has several hard links");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(paths_that_do_not_fit_are_not_cut),
        TEST(a_crowded_share_tells_of_no_guest_path),
        TEST(finds_the_bundle_by_qemu),
        TEST(tells_the_directory_of_a_container_that_has_ended),
        TEST(mistrusts_a_destination_that_ends_alike),
        TEST(reads_the_other_vmms),
        TEST(survives_a_bad_state),
        TEST(state_that_the_vmm_could_have_made_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
