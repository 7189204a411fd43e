/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs_test.c - what is read of a sandbox of runtime-rs: /run/kata, bundles, processes. */
#include "tests/unit/observe/node_fixture.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include "observe/process.h"

#define ID        "5ca1ab1e0123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define CONTAINER "c0ffee000123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define OTHER     "deadbeef0123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define STATE     "/run/kata/" ID
#define TASKS     "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
#define SHARED    "/run/kata-containers/shared/sandboxes/" ID "/rw/passthrough"
#define GUEST     "/run/kata-containers/shared/containers/passthrough/"
#define VOLUME    "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"

/* Afresh: what was read before is forgotten. */
static void observe(void)
{
    observed_sandbox_done(&sandbox);
    paths.cache = observe_cache_free(paths.cache);
    assert_int_equal(observe_cache_new(&paths.cache), 0);
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
}

/* sandbox_id NULL: without an engine for pods. */
static void write_bundle(const char *path, const char *sandbox_id, const char *mounts)
{
    char text[2048], annotations[512] = "", file[512];

    make_directory(path);
    if (sandbox_id)
        (void)snprintf(annotations, sizeof(annotations),
                       "\"io.kubernetes.cri.sandbox-id\":\"%s\","
                       "\"io.kubernetes.cri.sandbox-namespace\":\"default\","
                       "\"io.kubernetes.cri.sandbox-name\":\"web\"",
                       sandbox_id);
    (void)snprintf(text, sizeof(text), "{\"mounts\":[%s],\"annotations\":{%s}}", mounts,
                   annotations);
    (void)snprintf(file, sizeof(file), "%s/config.json", path);
    write_file(file, text);
}

#define MOUNT(source, destination)                                                                 \
    "{\"type\":\"bind\",\"source\":\"" source "\",\"destination\":\"" destination "\"}"

/* What runs once the pod does: the state directory, the bundles, shim and QEMU. */
static void start_qemu(const char *tasks)
{
    char bundle[256], container[256];

    (void)snprintf(bundle, sizeof(bundle), "%s/" ID, tasks);
    (void)snprintf(container, sizeof(container), "%s/" CONTAINER, tasks);
    make_directory(STATE);
    write_file(STATE "/state.json", "{\"hypervisor\":{\"hypervisor_type\":\"qemu\",\"pid\":null}}");
    write_bundle(bundle, ID, "");
    write_bundle(container, ID, MOUNT(VOLUME, "/srv/data") "," MOUNT("/etc/hosts", "/etc/hosts"));
    (void)start_process(bundle, "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process(bundle, "qemu-system-x86_64", "-name", "sandbox-" ID ",debug-threads=on",
                        "vhost-vsock-pci,disable-modern=false,guest-cid=77,id=vsock-77");
}

static void share(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), SHARED "/%s", name);
    make_directory(path);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void reads_a_living_qemu(void **state)
{
    struct process vmm_process;

    (void)state;
    start_qemu(TASKS);
    write_bundle(TASKS "/" OTHER, OTHER, MOUNT("/v/other", "/data"));
    make_socket(TASKS "/" ID, "debug-monitor.sock");
    share("0123456789-89abcdef-data");
    share("c0ffee0001-89abcdef-hosts");
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.runtime, RUNTIME_KATA_RS);
    assert_int_equal(sandbox.hypervisor, HYPERVISOR_QEMU);
    assert_int_equal(sandbox.vmm_pid, process[1]);
    assert_int_equal(process_read(process[1], &vmm_process), 0);
    assert_int_equal(sandbox.vmm_start_ns, vmm_process.start_ns);
    assert_string_equal(sandbox.control_socket, TASKS "/" ID "/debug-monitor.sock");
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
    assert_string_equal(sandbox.control_socket, TASKS "/" ID "/debug-monitor.sock");
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
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED_ABSENT);
    start_qemu(TASKS);
    stop_processes();
    observe();
    assert_false(sandbox.alive);
    assert_int_equal(sandbox.runtime, RUNTIME_KATA_RS);
    assert_int_equal(sandbox.claims, 0);
    make_directory("/run/kata/firecracker");
    assert_int_equal(observe_sandbox(&paths, "firecracker", &sandbox), OBSERVED_ABSENT);
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
        observed_sandbox_done(&sandbox);
        assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
    } while (!sandbox.alive && sandbox.try_again);
    assert_true(sandbox.alive);
}

/* Under the container's own id it is a directory of the node. */
static void tells_a_device_from_a_shared_directory(void **state)
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
    observed_sandbox_done(&sandbox);
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
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
    expect_guest_path(GUEST "0123456789-00000000-data");
    share("aaaaaaaaaa-89abcdef-data");
    expect_guest_path(NULL);
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
    observed_sandbox_done(&sandbox);
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
    assert_int_equal(sandbox.claims, 3);
    assert_int_equal(unlink(in_scratch(TASKS "/" OTHER "/config.json")), 0);
    assert_int_equal(rmdir(in_scratch(TASKS "/" OTHER)), 0);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 1);
    assert_string_equal(owner, ID);
    assert_int_equal(observe_bundle_owner(&paths, TASKS, OTHER, owner), 1);
    assert_string_equal(owner, "");
    observed_sandbox_done(&sandbox);
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
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

/* ---- who is not believed ------------------------------------------------------------------- */

static const struct started_as nobody = {NOBODY, "/bin/sh"};

static pid_t start_impostor(struct started_as as, const char *directory)
{
    (void)start_process_as(as, directory, "containerd-shim-kata-v2", "-id", ID, NULL);
    return start_process_as(as, directory, "qemu-system-x86_64", "-name", "sandbox-" ID,
                            "vhost-vsock-pci,guest-cid=99");
}

static void expect_real_qemu(pid_t pid)
{
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, pid);
    assert_string_equal(sandbox.agent_address, "vsock://77:1024");
    assert_string_equal(sandbox.bundles, TASKS);
}

/* Whichever comes first. */
static void another_user_is_not_believed(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    write_bundle("/home/" ID, ID, MOUNT("/v/of-a-user", "/data"));
    make_directory(STATE);
    (void)start_impostor(nobody, "/home/" ID);
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
    start_qemu(TASKS);
    expect_real_qemu(process[3]);
    stop_processes();
    start_qemu(TASKS);
    (void)start_impostor(nobody, "/home/" ID);
    expect_real_qemu(process[1]);
}

/* A program of which root is the owner, for all users to run. */
static void a_set_user_id_program_is_not_believed(void **state)
{
    char program[1024], command[1100];

    (void)state;
    make_directory(STATE);
    (void)snprintf(program, sizeof(program), "%s", in_scratch("/sudo"));
    (void)snprintf(command, sizeof(command), "cp /bin/sh %s", program);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(program, 04755), 0);
    (void)start_impostor((struct started_as){geteuid(), program}, "/");
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "set-user-id"));
}

static void a_vmm_without_a_tie_is_not_believed(void **state)
{
    (void)state;
    make_directory(STATE);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    observe();
    assert_false(sandbox.alive);
    assert_true(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "neither its parent nor its cgroup"));
}

static void of_two_neither_is_believed(void **state)
{
    pid_t second;

    (void)state;
    start_qemu(TASKS);
    second = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    observe();
    assert_false(sandbox.alive);
    assert_true(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "both say so"));
    assert_int_equal(process[--processes], second);
    (void)kill(second, SIGKILL);
    (void)waitpid(second, NULL, 0);
    expect_real_qemu(process[1]);
    assert_null(sandbox.problem);
}

/* What the engine runs for a moment, with the shim's own options. */
static void a_command_of_the_engine_is_no_shim(void **state)
{
    (void)state;
    start_qemu(TASKS);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, "delete");
    expect_real_qemu(process[1]);
}

/* A VMM of another user, which ends with the shim. */
static void start_rootless_vmm(void)
{
    siginfo_t info;
    pid_t vmm = fork();

    if (vmm > 0) {
        (void)waitid(P_PID, (id_t)vmm, &info, WSTOPPED | WEXITED | WNOWAIT);
        return;
    }
    if (setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
        execl("/bin/sh", "qemu-system-x86_64", "-c", "kill -STOP $$", "-name", "sandbox-" ID,
              (char *)NULL);
    _exit(127);
}

/* The shim has started it, and is root's. */
static void a_rootless_vmm_is_its_shims_child(void **state)
{
    pid_t shim;

    (void)state;
    if (geteuid() != 0)
        skip();
    make_directory(STATE);
    shim = fork();
    if (shim == 0) {
        start_rootless_vmm();
        execl("/bin/sh", "containerd-shim-kata-v2", "-c", "kill -STOP $$", "-id", ID, (char *)NULL);
        _exit(127);
    }
    process[processes++] = shim;
    assert_int_equal(waitid(P_PID, (id_t)shim, &(siginfo_t){0}, WSTOPPED | WEXITED | WNOWAIT), 0);
    observe();
    assert_true(sandbox.alive);
    assert_int_not_equal(sandbox.vmm_pid, shim);
    stop_processes();
    observe();
    assert_false(sandbox.alive);
}

static void a_bundle_that_others_can_write_is_not_read(void **state)
{
    (void)state;
    start_qemu(TASKS);
    assert_int_equal(chmod(in_scratch(TASKS), 0777), 0);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_null(sandbox.bundles);
    assert_non_null(strstr(sandbox.problem, TASKS ": is writable by others than its owner"));
    assert_int_equal(chmod(in_scratch(TASKS), 0700), 0);
    observe();
    assert_int_equal(sandbox.claims, 2);
    assert_null(sandbox.problem);
    assert_int_equal(chmod(in_scratch(TASKS "/" CONTAINER "/config.json"), 0666), 0);
    observe();
    assert_int_equal(sandbox.claims, 0);
}

/* Where the administrator says that bundles are. */
static void a_configured_bundle_that_others_can_write_is_named(void **state)
{
    static const char *const bundles[] = {"/configured"};

    (void)state;
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    write_bundle("/configured/" ID, ID, MOUNT("/v/1", "/a"));
    assert_int_equal(chmod(in_scratch("/configured"), 0775), 0);
    paths.bundles = bundles;
    paths.bundle_directories = 1;
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_non_null(strstr(sandbox.problem, "/configured: is writable by others"));
}

/* The Go runtime's VMM is known by its number, so that only the bundle is missing. */
static void a_shim_that_is_not_believed_is_named(void **state)
{
    pid_t vmm;

    (void)state;
    if (geteuid() != 0)
        skip();
    make_directory("/run/vc/vm/" ID);
    write_bundle(TASKS "/" ID, ID, MOUNT("/v/1", "/a"));
    vmm = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_null(sandbox.problem);
    (void)start_process_as(nobody, "/", "containerd-shim-kata-v2", "-id", ID, NULL);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_non_null(strstr(sandbox.problem, "shim: process"));
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
}

/* As many arguments as it likes, of one character each, and then the sandbox's. */
static pid_t start_wordy_process(unsigned words)
{
    static char program[] = "qemu-system-x86_64", command[] = "-c", script[] = "kill -STOP $$";
    static char word[] = "x", option[] = "-name", value[] = "sandbox-" ID;
    static char *arguments[8192] = {program, command, script};
    unsigned count = 3;
    pid_t pid;

    assert_true(words + 6 < array_length(arguments));
    while (words--)
        arguments[count++] = word;
    arguments[count++] = option;
    arguments[count++] = value;
    arguments[count] = NULL;
    pid = fork();
    if (pid == 0) {
        (void)execv("/bin/sh", arguments);
        _exit(127);
    }
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WSTOPPED | WEXITED | WNOWAIT), 0);
    return pid;
}

/* Whoever starts thousands of such processes must not keep the loop busy. */
static void more_arguments_than_a_vmm_has_are_not_looked_at(void **state)
{
    pid_t vmm;

    (void)state;
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_wordy_process(4096);
    observe();
    assert_false(sandbox.alive);
    vmm = start_wordy_process(1024);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, vmm);
}

static void a_cid_of_this_machine_is_no_guests(void **state)
{
    (void)state;
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID,
                        "vhost-vsock-pci,guest-cid=1");
    observe();
    assert_true(sandbox.alive);
    assert_null(sandbox.agent_address);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_a_living_qemu),
        TEST(a_container_without_cri_is_its_own_sandbox),
        TEST(uses_a_monitor_only_where_it_may),
        TEST(finds_the_monitor_that_crust_qemu_added),
        TEST(is_dead_without_its_vmm),
        TEST(finds_a_vmm_that_has_just_started),
        TEST(finds_the_bundle_by_qemu),
        TEST(tells_a_device_from_a_shared_directory),
        TEST(finds_bundles_in_other_engines),
        TEST(knows_a_guest_path_only_where_it_is_plain),
        TEST(mistrusts_a_destination_that_ends_alike),
        TEST(follows_containers),
        TEST(reads_the_other_vmms),
        TEST(reads_bundles_of_the_go_runtime_too),
        TEST(survives_a_bad_state),
        TEST(another_user_is_not_believed),
        TEST(a_set_user_id_program_is_not_believed),
        TEST(a_vmm_without_a_tie_is_not_believed),
        TEST(of_two_neither_is_believed),
        TEST(a_command_of_the_engine_is_no_shim),
        TEST(a_rootless_vmm_is_its_shims_child),
        TEST(a_bundle_that_others_can_write_is_not_read),
        TEST(a_configured_bundle_that_others_can_write_is_named),
        TEST(a_shim_that_is_not_believed_is_named),
        TEST(more_arguments_than_a_vmm_has_are_not_looked_at),
        TEST(a_cid_of_this_machine_is_no_guests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
