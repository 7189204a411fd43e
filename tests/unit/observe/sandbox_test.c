/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_test.c - what is read of a sandbox of the Go runtime: /run/vc and the VMM's process. */
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#include <sys/stat.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/process.h"

#define SHORT_ID "0123456789abcdef0123456789abcdef"
#define ID       SHORT_ID "0123456789abcdef0123456789abcdef"
#define JAIL     "/run/vc/firecracker/" SHORT_ID "/root"

static pid_t vmm;

static int start_kata(void **state)
{
    if (start(state) < 0)
        return -1;
    make_directory("/run/vc/sbs");
    make_directory("/run/vc/vm");
    return 0;
}

static void start_vmm(const char *program, const char *option, const char *value)
{
    vmm = start_process("/", program, option, value, NULL);
}

static void observe(void)
{
    assert_int_equal(observe_whole(ID), OBSERVED);
}

static void knows_absence(void **state)
{
    assert_int_equal(observe_whole(ID), OBSERVED_ABSENT);
    assert_int_equal(observe_whole("../vm"), OBSERVED_ABSENT);
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
    write_file("/run/vc/sbs/" ID "/persist.json", text);
}

#define TASKS  "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
#define VOLUME "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"

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
    make_directory("/run/vc/vm/" ID);
    make_directory("/run/vc/sbs/" ID);
    make_socket("/run/vc/vm/" ID, "extra-monitor.sock");
    write_pid("/run/vc/vm/" ID "/pid", getpid());
    write_persist(getpid());
    expect_dead();
    start_vmm("qemu", "-name", "sandbox-" ID "0"); /* a longer id */
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    expect_dead();
    stop_processes();
    start_vmm("qemu", "-name", "sandbox-x" ID);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    expect_dead();
}

static void takes_a_zombie_for_dead(void **state)
{
    siginfo_t info;

    make_directory("/run/vc/vm/" ID);
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)vmm, &info, WEXITED | WNOWAIT), 0);
    expect_dead();
    stop_processes();
    expect_dead();
}

#define ADDED "/run/crustd/qemu"

static void a_socket_that_the_vmm_does_not_mention_is_not_its_monitor(void **state)
{
    make_directory("/run/vc/vm/" ID);
    make_directory(ADDED);
    make_socket(ADDED, ID ".sock");
    vmm = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID,
                        "unix:" ADDED "/" ID ".socket,server=on,wait=off");
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_true(sandbox.alive);
    assert_null(sandbox.control_socket);
}

/* Whose number was another process' before. */
static void another_users_process_is_not_taken_for_the_vmm(void **state)
{
    if (geteuid() != 0)
        skip();
    make_directory("/run/vc/vm/" ID);
    vmm = start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "qemu-system-x86_64",
                           "-name", "sandbox-" ID, NULL);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
}

static void a_pid_file_that_others_can_write_names_no_vmm(void **state)
{
    make_directory("/run/vc/vm/" ID);
    start_vmm("qemu-system-x86_64", "-name", "sandbox-" ID);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    assert_int_equal(chmod(in_scratch("/run/vc/vm/" ID "/pid"), 0666), 0);
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "writable by others"));
}

static void write_mounts(const char *file, unsigned count)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

    assert_int_equal(buffer_append_format(&text,
                                          "{\"annotations\":{\"io.kubernetes.cri.sandbox-id\":"
                                          "\"" ID "\"},\"mounts\":["),
                     0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(buffer_append_format(&text,
                                              "%s{\"source\":\"/v%u\",\"destination\":\"/d%u\"}",
                                              i ? "," : "", i, i),
                         0);
    assert_int_equal(buffer_append_format(&text, "]}"), 0);
    write_file(file, buffer_text(&text));
}

static void mounts_beyond_the_limit_are_reported(void **state)
{
    enum { MOUNTS = 1024 };

    make_directory("/run/vc/vm/" ID);
    make_directory(TASKS "/" ID);
    make_directory(TASKS "/c1");
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    (void)start_process(TASKS "/" ID, "containerd-shim-kata-v2", "-id", ID, NULL);
    write_file(TASKS "/" ID "/config.json", "{}");
    write_mounts(TASKS "/c1/config.json", MOUNTS);
    observe();
    assert_int_equal(sandbox.claims, MOUNTS);
    assert_null(sandbox.problem);
    make_directory(TASKS "/c2");
    write_mounts(TASKS "/c2/config.json", 1);
    observe();
    assert_int_equal(sandbox.claims, MOUNTS);
    assert_non_null(strstr(sandbox.problem, "more containers or mounts than crustd reads"));
}

static void follows_the_vm_factorys_link(void **state)
{
    make_directory("/run/vc/vm/factory-vm");
    assert_int_equal(symlink("/run/vc/vm/factory-vm", in_scratch("/run/vc/vm/" ID)), 0);
    start_vmm("qemu", "-name", "sandbox-factory-vm");
    write_pid("/run/vc/vm/factory-vm/pid", vmm);
    make_socket("/run/vc/vm/factory-vm", "extra-monitor.sock");
    observe();
    assert_true(sandbox.alive);
    assert_string_equal(sandbox.control_socket, "/run/vc/vm/factory-vm/extra-monitor.sock");
}

/* The link's target leaves room for a part of the socket's name, which is another socket's. */
static void a_sockets_path_that_does_not_fit_is_not_cut(void **state)
{
    char target[PATH_MAX - (sizeof("/extra") - 1)];

    memset(target, '/', sizeof(target));
    memcpy(target + sizeof(target) - sizeof("/run/vc/vm/factory-vm"), "/run/vc/vm/factory-vm",
           sizeof("/run/vc/vm/factory-vm"));
    make_directory("/run/vc/vm/factory-vm");
    assert_int_equal(symlink(target, in_scratch("/run/vc/vm/" ID)), 0);
    start_vmm("qemu", "-name", "sandbox-factory-vm");
    write_pid("/run/vc/vm/factory-vm/pid", vmm);
    make_socket("/run/vc/vm/factory-vm", "extra");
    observe();
    assert_true(sandbox.alive);
    assert_null(sandbox.control_socket);
}

static void keeps_what_a_cut_file_leaves(void **state)
{
    make_directory("/run/vc/vm/" ID);
    make_directory("/run/vc/sbs/" ID);
    make_directory("/run/vc/sbs/" ID "/c1");
    start_vmm("qemu", "-name", "sandbox-" ID);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    write_persist(vmm);
    write_file("/run/vc/sbs/" ID "/c1/persist.json", "{\"Mounts\":[");
    observe();
    assert_true(sandbox.alive && sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "c1/persist.json"));
    assert_int_equal(sandbox.drives, 2);
    write_file("/run/vc/sbs/" ID "/persist.json", "{\"Devi");
    observe();
    assert_true(sandbox.alive && sandbox.try_again);
    assert_int_equal(sandbox.drives, 0);
    write_file("/run/vc/sbs/" ID "/persist.json", "{\"Devices\":[],\"devices\":[]}");
    write_file("/run/vc/sbs/" ID "/c1/persist.json", "{}");
    observe();
    assert_true(sandbox.alive);
    assert_false(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "persist.json: "));
}

static void directories_whose_paths_do_not_fit_are_not_cut(void **state)
{
    static char longest[PATH_MAX];
    struct observed_sandbox other = {0};

    memset(longest, '/', sizeof(longest) - 1);
    paths.kata_go_sandboxes = longest;
    assert_true(observe_sandbox(&paths, ID, &other) < 0);
    paths.kata_go_sandboxes = "/run/vc/sbs";
    paths.kata_go_vms = longest;
    assert_true(observe_sandbox(&paths, ID, &other) < 0);
}

static void reports_a_bad_pid_file(void **state)
{
    make_directory("/run/vc/vm/" ID);
    write_file("/run/vc/vm/" ID "/pid", "12x");
    observe();
    assert_non_null(strstr(sandbox.problem, "not a process id"));
    write_file("/run/vc/vm/" ID "/pid", "");
    observe();
    assert_true(sandbox.try_again);
    write_file("/run/vc/vm/" ID "/pid", "-1");
    observe();
    assert_false(sandbox.alive);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start_kata, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(knows_absence),
        TEST(takes_no_other_process_for_it),
        TEST(takes_a_zombie_for_dead),
        TEST(a_socket_that_the_vmm_does_not_mention_is_not_its_monitor),
        TEST(another_users_process_is_not_taken_for_the_vmm),
        TEST(a_pid_file_that_others_can_write_names_no_vmm),
        TEST(mounts_beyond_the_limit_are_reported),
        TEST(follows_the_vm_factorys_link),
        TEST(a_sockets_path_that_does_not_fit_is_not_cut),
        TEST(keeps_what_a_cut_file_leaves),
        TEST(directories_whose_paths_do_not_fit_are_not_cut),
        TEST(reports_a_bad_pid_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
