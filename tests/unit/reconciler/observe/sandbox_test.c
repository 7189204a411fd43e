/* sandbox_test.c - a fixture of /run/vc below a root, with real processes for VMMs.
 *
 * A VMM is a stopped child with the arguments that a VMM would have.
 */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "reconciler/observe/observe.h"

#define SHORT_ID "0123456789abcdef0123456789abcdef"
#define ID       SHORT_ID "0123456789abcdef0123456789abcdef"
#define JAIL     "run/vc/firecracker/" SHORT_ID "/root"

static char scratch[64];
static struct observe_sandbox_paths paths = {.kata_go_sandboxes = "/run/vc/sbs",
                                             .kata_go_vms = "/run/vc/vm",
                                             .kata_rs_sandboxes = "/run/kata",
                                             .agent_port = 1024,
                                             .extra_monitor = true};
static struct observed_sandbox sandbox;
static pid_t vmm;

static const char *in_scratch(const char *path)
{
    static char full[512];

    (void)snprintf(full, sizeof(full), "%s/%s", scratch, path);
    return full;
}

static void make_directory(const char *path)
{
    assert_int_equal(mkdir(in_scratch(path), 0700), 0);
}

static void write_file(const char *path, const char *text)
{
    cleanup(fd_closep) int fd =
        open(in_scratch(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Through its directory: the whole path is longer than an address can be. */
static void make_socket(const char *directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cleanup(fd_closep) int directory_fd = open(in_scratch(directory), O_PATH | O_CLOEXEC);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory_fd,
                   name);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
}

static int start(void **state)
{
    (void)state;
    (void)snprintf(scratch, sizeof(scratch), "/tmp/sandbox-test-XXXXXX");
    if (observe_cache_new(&paths.cache) < 0 || !mkdtemp(scratch) ||
        path_open_root(scratch, &paths.root) < 0)
        return -1;
    return path_make_directories(paths.root, "/run/vc/sbs", 0700) < 0 ||
                   path_make_directories(paths.root, "/run/vc/vm", 0700) < 0
               ? -1
               : 0;
}

static void stop_vmm(void)
{
    if (vmm <= 0)
        return;
    (void)kill(vmm, SIGKILL);
    (void)waitpid(vmm, NULL, 0);
    vmm = 0;
}

static int stop(void **state)
{
    char command[128];

    (void)state;
    stop_vmm();
    observed_sandbox_done(&sandbox);
    paths.cache = observe_cache_free(paths.cache);
    fd_close(paths.root);
    paths.main_monitor = false;
    (void)snprintf(command, sizeof(command), "rm -rf %s", scratch);
    return system(command);
}

/* A shell that stops itself; what follows its script means nothing to it. Waits until the arguments
 * are in place: exec closes the pipe. */
static void start_vmm(const char *program, const char *option, const char *value)
{
    int pipe_fd[2];
    char byte;

    assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
    vmm = fork();
    if (vmm == 0) {
        execl("/bin/sh", program, "-c", "kill -STOP $$", option, value, (char *)NULL);
        _exit(127);
    }
    assert_true(vmm > 0);
    (void)close(pipe_fd[1]);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 0);
    (void)close(pipe_fd[0]);
}

static void write_pid(const char *path, pid_t pid)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d\n", (int)pid);
    write_file(path, text);
}

static void observe(void)
{
    observed_sandbox_done(&sandbox);
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED);
}

static void knows_absence(void **state)
{
    (void)state;
    assert_int_equal(observe_sandbox(&paths, ID, &sandbox), OBSERVED_ABSENT);
    assert_int_equal(observe_sandbox(&paths, "../vm", &sandbox), OBSERVED_ABSENT);
}

#define PERSIST                                                                                    \
    "{\"Devices\":[{\"ID\":\"dev1\",\"Type\":\"block\",\"Major\":7,\"Minor\":3,\"BlockDrive\":{"   \
    "\"File\":\"/dev/loop3\",\"ID\":\"drive-1\",\"SCSIAddr\":\"0:1\"}},"                           \
    "{\"ID\":\"dev2\",\"Type\":\"block\",\"Major\":7,\"Minor\":4,\"BlockDrive\":{\"File\":\"/dev/" \
    "loop4\"}}],\"HypervisorState\":{\"Type\":\"qemu\",\"Pid\":%d},\"AgentState\":{\"URL\":"       \
    "\"vsock:"                                                                                     \
    "//3:1024\"},\"Config\":{\"HypervisorConfig\":{\"BlockDeviceDriver\":\"virtio-scsi\"}}}"

static void write_persist(pid_t pid)
{
    char text[1024];

    (void)snprintf(text, sizeof(text), PERSIST, (int)pid);
    write_file("run/vc/sbs/" ID "/persist.json", text);
}

/* As Cloud Hypervisor's and Firecracker's sandboxes have it. */
static void write_persist_of(const char *type, pid_t pid, const char *agent)
{
    char text[512];

    (void)snprintf(
        text, sizeof(text),
        "{\"HypervisorState\":{\"Type\":\"%s\",\"Pid\":%d},\"AgentState\":{\"URL\":\"%s\"}}", type,
        (int)pid, agent);
    write_file("run/vc/sbs/" ID "/persist.json", text);
}

static void reads_a_living_sandbox(void **state)
{
    uint64_t start_ns;

    (void)state;
    make_directory("run/vc/vm/" ID);
    make_directory("run/vc/sbs/" ID);
    make_directory("run/vc/sbs/" ID "/c1");
    make_directory("run/vc/sbs/" ID "/c2");
    start_vmm("/usr/bin/qemu-system-x86_64", "-name", "sandbox-" ID ",debug-threads=on");
    write_pid("run/vc/vm/" ID "/pid", vmm);
    make_socket("run/vc/vm/" ID, "extra-monitor.sock");
    write_persist(0);
    write_file("run/vc/sbs/" ID "/c1/persist.json",
               "{\"Mounts\":[{\"Source\":\"/dev/disk/link\",\"BlockDeviceID\":\"dev1\"}]}");
    write_file("run/vc/sbs/" ID "/c2/persist.json",
               "{\"Mounts\":[{\"Source\":\"/dev/disk/link\",\"BlockDeviceID\":\"dev1\"},"
               "{\"Source\":\"/dev/other\",\"BlockDeviceID\":\"dev1\"}]}");
    observe();
    assert_true(sandbox.alive);
    assert_string_equal(sandbox.runtime, "kata-go");
    assert_string_equal(sandbox.hypervisor, "qemu");
    assert_int_equal(sandbox.vmm_pid, vmm);
    assert_int_equal(observe_process_start(vmm, &start_ns), 0);
    assert_int_equal(sandbox.vmm_start_ns, start_ns);
    assert_string_equal(sandbox.control_socket, "/run/vc/vm/" ID "/extra-monitor.sock");
    assert_string_equal(sandbox.agent_address, "vsock://3:1024");
    assert_null(sandbox.problem);
    assert_false(sandbox.try_again);
    assert_int_equal(sandbox.drives, 3);
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(sandbox.drive[i].file, "/dev/loop3");
        assert_string_equal(sandbox.drive[i].drive_id, "drive-1");
        assert_string_equal(sandbox.drive[i].guest_path,
                            "/run/kata-containers/sandbox/storage/MDox");
    }
    assert_string_not_equal(sandbox.drive[0].mount_source, sandbox.drive[1].mount_source);
    assert_null(sandbox.drive[2].mount_source);
    assert_int_equal(sandbox.drive[2].minor, 4);
}

static void takes_the_pid_from_persist(void **state)
{
    (void)state;
    make_directory("run/vc/sbs/" ID);
    start_vmm("cloud-hypervisor", "--api-socket", "/run/vc/vm/" ID "/clh-api.sock");
    write_persist(vmm);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, vmm);
    assert_string_equal(sandbox.hypervisor, "qemu"); /* as the runtime wrote */
}

static void finds_cloud_hypervisors_api(void **state)
{
    (void)state;
    make_directory("run/vc/sbs/" ID);
    make_directory("run/vc/vm/" ID);
    make_socket("run/vc/vm/" ID, "clh-api.sock");
    make_socket("run/vc/vm/" ID, "extra-monitor.sock");
    start_vmm("/opt/kata/bin/cloud-hypervisor", "--api-socket", "/run/vc/vm/" ID "/clh-api.sock");
    write_persist_of("clh", vmm, "hvsock:///run/vc/vm/" ID "/clh.sock:1024");
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, vmm);
    assert_string_equal(sandbox.runtime, "kata-go");
    assert_string_equal(sandbox.hypervisor, "cloud-hypervisor");
    assert_string_equal(sandbox.control_socket, "/run/vc/vm/" ID "/clh-api.sock");
    assert_string_equal(sandbox.agent_address, "hvsock:///run/vc/vm/" ID "/clh.sock:1024");
    assert_int_equal(unlink(in_scratch("run/vc/vm/" ID "/clh-api.sock")), 0);
    observe();
    assert_true(sandbox.alive);
    assert_null(sandbox.control_socket); /* nothing else is its API */
}

static void make_jail(void)
{
    assert_int_equal(path_make_directories(paths.root, "/" JAIL "/run", 0700), 0);
}

static void expect_firecracker(void)
{
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, vmm);
    assert_string_equal(sandbox.runtime, "kata-go");
    assert_string_equal(sandbox.hypervisor, "firecracker");
    assert_string_equal(sandbox.control_socket, "/" JAIL "/run/firecracker.socket");
}

static void finds_firecrackers_api(void **state)
{
    (void)state;
    make_directory("run/vc/sbs/" ID);
    make_jail();
    make_socket(JAIL "/run", "firecracker.socket");
    start_vmm("firecracker", "--api-sock", "/" JAIL "/run/firecracker.socket");
    write_persist_of("firecracker", vmm, "hvsock:///" JAIL "/kata.hvsock:1024");
    expect_firecracker();
    assert_string_equal(sandbox.agent_address, "hvsock:///" JAIL "/kata.hvsock:1024");
    assert_false(sandbox.try_again);
    stop_vmm();
    start_vmm("firecracker", "--api-sock",
              "/run/vc/firecracker/" SHORT_ID "0/root/run/firecracker.socket");
    write_persist_of("firecracker", vmm, "");
    observe();
    assert_false(sandbox.alive); /* another's */
    assert_null(sandbox.control_socket);
}

static void finds_a_jailed_firecracker(void **state)
{
    (void)state;
    make_jail();
    make_socket(JAIL "/run", "firecracker.socket");
    start_vmm("/firecracker", "--id", SHORT_ID);
    write_pid(JAIL "/firecracker.pid", vmm);
    expect_firecracker();
    assert_true(sandbox.try_again); /* persist.json is still to come */
    make_directory("run/vc/sbs/" ID);
    write_persist_of("firecracker", getpid(), ""); /* the jailer that started it has ended */
    expect_firecracker();
    assert_int_equal(unlink(in_scratch(JAIL "/firecracker.pid")), 0);
    write_persist_of("firecracker", vmm, "");
    expect_firecracker();
    assert_false(sandbox.try_again);
}

static void takes_no_jailer_for_a_vmm(void **state)
{
    (void)state;
    make_directory("run/vc/sbs/" ID);
    make_jail();
    make_socket(JAIL "/run", "firecracker.socket");
    start_vmm("/opt/kata/bin/jailer", "--id", SHORT_ID);
    write_persist_of("firecracker", vmm, "");
    observe();
    assert_false(sandbox.alive);
    assert_null(sandbox.control_socket);
}

static void expect_dead(void)
{
    observe();
    assert_false(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, 0);
    assert_null(sandbox.control_socket);
    assert_false(sandbox.try_again);
}

static void takes_no_other_process_for_it(void **state)
{
    (void)state;
    make_directory("run/vc/vm/" ID);
    make_directory("run/vc/sbs/" ID);
    make_socket("run/vc/vm/" ID, "extra-monitor.sock");
    write_pid("run/vc/vm/" ID "/pid", getpid());
    write_persist(getpid());
    expect_dead();
    start_vmm("qemu", "-name", "sandbox-" ID "0"); /* a longer id */
    write_pid("run/vc/vm/" ID "/pid", vmm);
    expect_dead();
    stop_vmm();
    start_vmm("qemu", "-name", "sandbox-x" ID);
    write_pid("run/vc/vm/" ID "/pid", vmm);
    expect_dead();
}

static void takes_a_zombie_for_dead(void **state)
{
    siginfo_t info;

    (void)state;
    make_directory("run/vc/vm/" ID);
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)vmm, &info, WEXITED | WNOWAIT), 0);
    expect_dead();
    stop_vmm();
    expect_dead();
}

static void uses_the_main_monitor_only_when_told(void **state)
{
    (void)state;
    make_directory("run/vc/vm/" ID);
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("run/vc/vm/" ID "/pid", vmm);
    make_socket("run/vc/vm/" ID, "qmp.sock");
    write_file("run/vc/vm/" ID "/extra-monitor.sock", ""); /* not a socket */
    observe();
    assert_null(sandbox.control_socket);
    paths.main_monitor = true;
    observe();
    assert_string_equal(sandbox.control_socket, "/run/vc/vm/" ID "/qmp.sock");
}

static void follows_the_vm_factorys_link(void **state)
{
    (void)state;
    make_directory("run/vc/vm/factory-vm");
    assert_int_equal(symlink("/run/vc/vm/factory-vm", in_scratch("run/vc/vm/" ID)), 0);
    start_vmm("qemu", "-name", "sandbox-factory-vm");
    write_pid("run/vc/vm/factory-vm/pid", vmm);
    make_socket("run/vc/vm/factory-vm", "extra-monitor.sock");
    observe();
    assert_true(sandbox.alive);
    assert_string_equal(sandbox.control_socket, "/run/vc/vm/factory-vm/extra-monitor.sock");
}

static void keeps_what_a_cut_file_leaves(void **state)
{
    (void)state;
    make_directory("run/vc/vm/" ID);
    make_directory("run/vc/sbs/" ID);
    make_directory("run/vc/sbs/" ID "/c1");
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("run/vc/vm/" ID "/pid", vmm);
    write_persist(vmm);
    write_file("run/vc/sbs/" ID "/c1/persist.json", "{\"Mounts\":[");
    observe();
    assert_true(sandbox.alive && sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "c1/persist.json"));
    assert_int_equal(sandbox.drives, 2);
    write_file("run/vc/sbs/" ID "/persist.json", "{\"Devi");
    observe();
    assert_true(sandbox.alive && sandbox.try_again);
    assert_int_equal(sandbox.drives, 0);
    write_file("run/vc/sbs/" ID "/persist.json", "{\"a\":1,\"A\":1}");
    write_file("run/vc/sbs/" ID "/c1/persist.json", "{}");
    observe();
    assert_true(sandbox.alive);
    assert_false(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "persist.json: "));
}

static void reports_a_bad_pid_file(void **state)
{
    (void)state;
    make_directory("run/vc/vm/" ID);
    write_file("run/vc/vm/" ID "/pid", "12x");
    observe();
    assert_non_null(strstr(sandbox.problem, "not a process id"));
    write_file("run/vc/vm/" ID "/pid", "");
    observe();
    assert_true(sandbox.try_again);
    write_file("run/vc/vm/" ID "/pid", "-1");
    observe();
    assert_false(sandbox.alive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(knows_absence, start, stop),
        cmocka_unit_test_setup_teardown(reads_a_living_sandbox, start, stop),
        cmocka_unit_test_setup_teardown(takes_the_pid_from_persist, start, stop),
        cmocka_unit_test_setup_teardown(finds_cloud_hypervisors_api, start, stop),
        cmocka_unit_test_setup_teardown(finds_firecrackers_api, start, stop),
        cmocka_unit_test_setup_teardown(finds_a_jailed_firecracker, start, stop),
        cmocka_unit_test_setup_teardown(takes_no_jailer_for_a_vmm, start, stop),
        cmocka_unit_test_setup_teardown(takes_no_other_process_for_it, start, stop),
        cmocka_unit_test_setup_teardown(takes_a_zombie_for_dead, start, stop),
        cmocka_unit_test_setup_teardown(uses_the_main_monitor_only_when_told, start, stop),
        cmocka_unit_test_setup_teardown(follows_the_vm_factorys_link, start, stop),
        cmocka_unit_test_setup_teardown(keeps_what_a_cut_file_leaves, start, stop),
        cmocka_unit_test_setup_teardown(reports_a_bad_pid_file, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
