/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs_test.c - what is read of a sandbox of runtime-rs: /run/kata, bundles, processes. */
#define ID "5ca1ab1e0123456789abcdef0123456789abcdef0123456789abcdef01234567"

#include "tests/unit/observe/kata_rs_fixture.h"

#include <sys/stat.h>
#include <time.h>

#include "lib/process.h"
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

    (void)state;
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

    (void)state;
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

static void reads_a_living_qemu(void **state)
{
    struct process vmm_process;

    (void)state;
    start_qemu(TASKS);
    write_bundle(TASKS "/" OTHER, OTHER, MOUNT("/v/other", "/data"));
    make_socket(TASKS "/" ID, "debug-monitor.sock"); /* a human monitor */
    share("0123456789-89abcdef-data");
    share("c0ffee0001-89abcdef-hosts");
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.runtime, RUNTIME_KATA_RS);
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_QEMU);
    assert_int_equal(sandbox.vmm_pid, process[1]);
    assert_int_equal(process_read(process[1], &vmm_process), 0);
    assert_int_equal(sandbox.vmm_start_ns, vmm_process.start_ns);
    assert_null(sandbox.control_socket);
    assert_string_equal(sandbox.agent_address, "vsock://77:1024");
    assert_string_equal(sandbox.pod_namespace, "default");
    assert_string_equal(sandbox.pod_name, "web");
    assert_string_equal(sandbox.bundles, TASKS);
    assert_int_equal(sandbox.drives, 0);
    assert_int_equal(sandbox.claims, 2);
    assert_string_equal(sandbox.claim[0].path, "/etc/hosts");
    assert_null(sandbox.claim[0].guest_path);
    assert_string_equal(sandbox.claim[1].path, VOLUME);
    assert_string_equal(sandbox.claim[1].source, "bundle");
    assert_string_equal(sandbox.claim[1].guest_path, GUEST "0123456789-89abcdef-data");
    assert_null(sandbox.problem);
    assert_false(sandbox.try_again);
}

/* As ctr and nerdctl start them, beside others of their kind. */
static void a_container_without_cri_is_its_own_sandbox(void **state)
{
    (void)state;
    start_qemu(TASKS);
    write_bundle(TASKS "/" CONTAINER, NULL, MOUNT("/v/of-another-sandbox", "/data"));
    write_bundle(TASKS "/" ID, NULL, MOUNT(VOLUME, "/srv/data"));
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 1);
    assert_string_equal(sandbox.claim[0].path, VOLUME);
    assert_null(sandbox.pod_name);
}

static void uses_a_monitor_only_where_it_may(void **state)
{
    (void)state;
    start_qemu(TASKS);
    make_socket(TASKS "/" ID, "qmp.sock");
    observe();
    assert_null(sandbox.control_socket);
    paths.main_monitor = true;
    observe();
    assert_string_equal(sandbox.control_socket, TASKS "/" ID "/qmp.sock");
    make_socket(TASKS "/" ID, "debug-monitor.sock");
    observe();
    assert_string_equal(sandbox.control_socket, TASKS "/" ID "/qmp.sock");
}

static void finds_the_monitor_that_crust_qemu_added(void **state)
{
    (void)state;
    make_directory(STATE);
    make_directory("/run/crustd/qemu");
    write_file(STATE "/state.json", "{\"hypervisor\":{\"hypervisor_type\":\"qemu\"}}");
    write_bundle(TASKS "/" ID, ID, "");
    (void)start_process(TASKS "/" ID, "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process(TASKS "/" ID, "qemu-system-x86_64", "-name", "sandbox-" ID,
                        "unix:/run/crustd/qemu/" ID ".sock,server=on,wait=off");
    make_socket("/run/crustd/qemu", ID ".sock");
    make_socket(TASKS "/" ID, "debug-monitor.sock");
    observe();
    assert_string_equal(sandbox.control_socket, "/run/crustd/qemu/" ID ".sock");
}

static void is_dead_without_its_vmm(void **state)
{
    (void)state;
    assert_int_equal(observe_whole(ID), OBSERVED_ABSENT);
    start_qemu(TASKS);
    stop_processes();
    observe();
    assert_false(sandbox.alive);
    assert_int_equal(sandbox.runtime, RUNTIME_KATA_RS);
    assert_int_equal(sandbox.claims, 0);
    make_directory("/run/kata/firecracker");
    assert_int_equal(observe_whole("firecracker"), OBSERVED_ABSENT);
}

/* What /proc was read for before the VMM started does not hide it: a look says that it is to be
 * repeated. */
static void finds_a_vmm_that_has_just_started(void **state)
{
    (void)state;
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    observe();
    assert_false(sandbox.alive);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    do {
        assert_int_equal(observe_whole(ID), OBSERVED);
    } while (!sandbox.alive && sandbox.try_again);
    assert_true(sandbox.alive);
}

/* Under the container's own id it is a directory of the node. */
static void device_differs_from_a_shared_directory(void **state)
{
    (void)state;
    start_qemu(TASKS);
    observe();
    assert_string_equal(sandbox.claim[1].path, VOLUME);
    assert_int_equal(sandbox.claim[1].carrier, CARRIER_UNKNOWN);
    share("c0ffee0001-01234567-data");
    observe();
    assert_int_equal(sandbox.claim[1].carrier, CARRIER_DIRECTORY);
    assert_null(sandbox.claim[1].guest_path);
    share("0123456789-89abcdef-data");
    observe();
    assert_int_equal(sandbox.claim[1].carrier, CARRIER_DEVICE);
    assert_string_equal(sandbox.claim[1].guest_path, GUEST "0123456789-89abcdef-data");
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
    (void)state;
    start_qemu(TASKS);
    observe();
    stop_first_process();
    observe_again();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 2);
}

static void finds_bundles_in_other_engines(void **state)
{
    static const char *const bundles[] = {"/configured"};

    (void)state;
    make_directory(STATE);
    make_directory("/elsewhere");
    (void)start_process("/elsewhere", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/elsewhere", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    write_bundle("/configured/" ID "/userdata", ID, "");
    write_bundle("/configured/" CONTAINER "/userdata", ID, MOUNT("/v/1", "/a"));
    observe();
    assert_int_equal(sandbox.claims, 0);
    assert_null(sandbox.bundles);
    paths.bundles = bundles;
    paths.bundle_directories = 1;
    observe();
    assert_string_equal(sandbox.bundles, "/configured");
    assert_int_equal(sandbox.claims, 1);
    assert_string_equal(sandbox.claim[0].path, "/v/1");
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

static void knows_a_guest_path_only_where_it_is_plain(void **state)
{
    (void)state;
    start_qemu(TASKS);
    expect_guest_path(NULL);
    share("0123456789-89abcdef-other-data");
    share("0123456789-89abcdef-dat");
    share("012345678-89abcdef-data");
    share("c0ffee0001-89abcdef-data");
    expect_guest_path(NULL);
    share("0123456789-89abcdef-data");
    expect_guest_path(GUEST "0123456789-89abcdef-data");
    share("0123456789-00000000-data"); /* the same device, for another container */
    set_age(SHARED "/0123456789-00000000-data", -1);
    expect_guest_path(GUEST "0123456789-89abcdef-data");
    share("aaaaaaaaaa-89abcdef-data");
    expect_guest_path(NULL);
}

/* The shim leaves the directory of a container that has ended; the next one gets another device. */
static void tells_the_directory_of_a_container_that_has_ended(void **state)
{
    (void)state;
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
    (void)state;
    start_qemu(TASKS);
    share("0123456789-89abcdef-data");
    write_bundle(TASKS "/" OTHER, ID, MOUNT("/a", "/data"));
    expect_guest_path(NULL);
    write_bundle(TASKS "/" OTHER, ID, MOUNT("/a", "/data") "," MOUNT(VOLUME, "/plain"));
    share("0123456789-89abcdef-plain");
    expect_guest_path(GUEST "0123456789-89abcdef-plain");
}

static void follows_containers(void **state)
{
    char owner[OBSERVE_SANDBOX_ID_BYTES];

    (void)state;
    start_qemu(TASKS);
    observe();
    assert_int_equal(observe_bundle_owner(&paths, TASKS, CONTAINER, owner), 0);
    assert_string_equal(owner, ID);
    make_directory(TASKS "/" OTHER);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 2);
    write_bundle(TASKS "/" OTHER, ID, MOUNT("/a", "/a"));
    while (observe_bundle_owner(&paths, TASKS, OTHER, owner) == 2)
        assert_string_equal(owner, ID);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 0);
    assert_string_equal(owner, ID);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_int_equal(sandbox.claims, 3);
    assert_int_equal(unlink(in_scratch(TASKS "/" OTHER "/config.json")), 0);
    assert_int_equal(rmdir(in_scratch(TASKS "/" OTHER)), 0);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 1);
    assert_string_equal(owner, ID);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 1);
    assert_string_equal(owner, "");
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_int_equal(sandbox.claims, 2);
}

static void reads_the_other_vmms(void **state)
{
    (void)state;
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

/* Its guest paths are derived otherwise. */
static void reads_bundles_of_the_go_runtime_too(void **state)
{
    (void)state;
    start_qemu(TASKS);
    make_directory("/run/vc/vm/" ID);
    write_pid("/run/vc/vm/" ID "/pid", process[1]);
    share("0123456789-89abcdef-data");
    observe();
    assert_int_equal(sandbox.runtime, RUNTIME_KATA_GO);
    assert_string_equal(sandbox.pod_name, "web");
    assert_int_equal(sandbox.claims, 2);
    assert_string_equal(sandbox.claim[1].path, VOLUME);
    assert_null(sandbox.claim[1].guest_path);
    stop_processes();
    observe();
    assert_false(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
}

static void survives_a_bad_state(void **state)
{
    (void)state;
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

    (void)state;
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
        TEST(reads_a_living_qemu),
        TEST(a_crowded_share_tells_of_no_guest_path),
        TEST(a_container_without_cri_is_its_own_sandbox),
        TEST(uses_a_monitor_only_where_it_may),
        TEST(finds_the_monitor_that_crust_qemu_added),
        TEST(is_dead_without_its_vmm),
        TEST(finds_a_vmm_that_has_just_started),
        TEST(finds_the_bundle_by_qemu),
        TEST(device_differs_from_a_shared_directory),
        TEST(finds_bundles_in_other_engines),
        TEST(knows_a_guest_path_only_where_it_is_plain),
        TEST(tells_the_directory_of_a_container_that_has_ended),
        TEST(mistrusts_a_destination_that_ends_alike),
        TEST(follows_containers),
        TEST(reads_the_other_vmms),
        TEST(reads_bundles_of_the_go_runtime_too),
        TEST(survives_a_bad_state),
        TEST(state_that_the_vmm_could_have_made_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
