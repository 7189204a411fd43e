/* SPDX-License-Identifier: Apache-2.0 */
/* drive_fake_test.c - drives of a Cloud Hypervisor and a Firecracker that are processes of their
 * own: the stand-ins of tests/fakes, which open what they are told to open. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hypervisor/drive.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

enum { DISK_BYTES = 1 << 20, ATTEMPTS = 6000, ARGUMENTS = 16, CYCLES = 50 };

struct fake {
    char directory[SCRATCH_BYTES];
    char first[96], disk[96], socket[96];
    struct stat status; /* of the disk */
    int root, claim;
    pid_t vmm;
    enum hypervisor_kind kind;
    struct loop loop;
    struct hypervisor_drive_reply reply;
    struct hypervisor_drive_entry entry;
};

static int set_up(void **state)
{
    struct fake *fake = calloc(1, sizeof(*fake));

    assert_non_null(fake);
    assert_int_equal(loop_init(&fake->loop), 0);
    assert_int_equal(path_open_root("/", &fake->root), 0);
    assert_int_equal(scratch_directory_make(fake->directory), 0);
    (void)snprintf(fake->first, sizeof(fake->first), "%s/first", fake->directory);
    (void)snprintf(fake->disk, sizeof(fake->disk), "%s/disk", fake->directory);
    (void)snprintf(fake->socket, sizeof(fake->socket), "%s/api.sock", fake->directory);
    fake->claim = open(fake->first, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fake->claim, DISK_BYTES), 0);
    fd_close(fake->claim);
    fake->claim = open(fake->disk, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fake->claim, DISK_BYTES), 0);
    assert_int_equal(fstat(fake->claim, &fake->status), 0);
    *state = fake;
    return 0;
}

static int tear_down(void **state)
{
    struct fake *fake = *state;
    int r;

    if (fake->vmm > 0) {
        (void)kill(fake->vmm, SIGKILL);
        (void)waitpid(fake->vmm, NULL, 0);
    }
    fd_close(fake->claim);
    fd_close(fake->root);
    loop_done(&fake->loop);
    r = scratch_directory_remove(fake->directory);
    free(fake);
    return r;
}

static bool is_listening(const struct fake *fake)
{
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->socket);
    return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* Runs a program of tests/fakes with these arguments, and waits for its socket. */
static void start(struct fake *fake, enum hypervisor_kind kind, const char *const *arguments)
{
    char *copy[ARGUMENTS] = {strdup("python3")};

    for (unsigned i = 0; arguments[i]; i++)
        copy[i + 1] = strdup(arguments[i]);
    fake->kind = kind;
    fake->vmm = fork();
    if (fake->vmm == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(null, STDOUT_FILENO);
        (void)execvp(copy[0], copy);
        _exit(127);
    }
    for (unsigned i = 0; copy[i]; i++)
        free(copy[i]);
    for (unsigned i = 0; !is_listening(fake); i++) {
        assert_in_range(i, 0, ATTEMPTS);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
}

static void start_cloud_hypervisor(struct fake *fake, const char *eject_after)
{
    start(fake, HYPERVISOR_CLOUD_HYPERVISOR,
          (const char *const[]){"tests/fakes/cloud_hypervisor.py", "--api-socket", fake->socket,
                                "--device", fake->first, "--version", "v54.0", "--eject-after",
                                eject_after, NULL});
}

static void start_firecracker(struct fake *fake, const char *version, const char *more)
{
    start(fake, HYPERVISOR_FIRECRACKER,
          (const char *const[]){"tests/fakes/firecracker.py", "--api-sock", fake->socket,
                                "--device", fake->first, "--version", version, more, NULL});
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void on_done(struct hypervisor_drive_call *call, const struct hypervisor_drive_reply *reply,
                    void *userdata)
{
    struct fake *fake = userdata;

    fake->reply = *reply;
    if (reply->entry_count)
        fake->entry = reply->entries[0];
    (void)hypervisor_drive_call_free(call);
    loop_stop(&fake->loop);
}

static struct hypervisor_drive_request request_for(const struct fake *fake,
                                                   enum hypervisor_drive_act act)
{
    return (struct hypervisor_drive_request){
        .act = act,
        .root = fake->root,
        .control_socket = fake->socket,
        .vmm_pid = fake->vmm,
        .drive_id = act == HYPERVISOR_DRIVE_LIST ? NULL : "a-drive_1",
        .disk = {.regular_file = true, .device = fake->status.st_dev, .inode = fake->status.st_ino},
        .descriptor = act == HYPERVISOR_DRIVE_ATTACH ? fake->claim : -1,
        .path = fake->disk,
        .serial = "crust-abcdefghijklmn",
        .removal_ns = 60 * NSEC_PER_SEC,
        .deadline_ns = 120 * NSEC_PER_SEC,
    };
}

static void ask_for(struct fake *fake, const struct hypervisor_drive_request *request,
                    enum hypervisor_drive_outcome outcome, enum hypervisor_drive_state state)
{
    struct hypervisor_drive_call *call;
    struct error error;

    assert_int_equal(
        hypervisor_drive_call_new(&fake->loop, fake->kind, request, on_done, fake, &call, &error),
        0);
    loop_run(&fake->loop);
    if (fake->reply.outcome != outcome)
        print_error("%s\n", fake->reply.error.text);
    assert_int_equal(fake->reply.outcome, outcome);
    assert_int_equal(fake->reply.state, state);
}

static void ask(struct fake *fake, enum hypervisor_drive_act act,
                enum hypervisor_drive_outcome outcome, enum hypervisor_drive_state state)
{
    struct hypervisor_drive_request request = request_for(fake, act);

    ask_for(fake, &request, outcome, state);
}

#define DONE    HYPERVISOR_DRIVE_DONE
#define PRESENT HYPERVISOR_DRIVE_PRESENT
#define ABSENT  HYPERVISOR_DRIVE_ABSENT

static unsigned count_descriptors(const struct fake *fake)
{
    char path[48];
    DIR *names;
    unsigned count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)fake->vmm);
    names = opendir(path);
    assert_non_null(names);
    while (readdir(names))
        count++;
    assert_int_equal(closedir(names), 0);
    return count;
}

/* ---- Cloud Hypervisor ----------------------------------------------------------------------- */

static void cloud_hypervisor_has_the_disk_until_it_is_detached(void **state)
{
    struct fake *fake = *state;

    start_cloud_hypervisor(fake, "3");
    ask(fake, HYPERVISOR_DRIVE_LOOK, DONE, ABSENT);
    ask(fake, HYPERVISOR_DRIVE_ATTACH, DONE, PRESENT);
    assert_string_equal(fake->reply.serial, "crust-abcdefghijklmn");
    assert_string_equal(fake->reply.address, "pci:04");
    ask(fake, HYPERVISOR_DRIVE_ATTACH, DONE, PRESENT); /* again */
    ask(fake, HYPERVISOR_DRIVE_LOOK, DONE, PRESENT);
    ask(fake, HYPERVISOR_DRIVE_LIST, DONE, ABSENT);
    assert_int_equal(fake->reply.entry_count, 1);
    assert_string_equal(fake->entry.drive_id, "a-drive_1");
    assert_true(fake->entry.identified);
    assert_int_equal(fake->entry.disk.inode, fake->status.st_ino);
    ask(fake, HYPERVISOR_DRIVE_DETACH, DONE, ABSENT);
    ask(fake, HYPERVISOR_DRIVE_DETACH, DONE, ABSENT);
    ask(fake, HYPERVISOR_DRIVE_LIST, DONE, ABSENT);
    assert_int_equal(fake->reply.entry_count, 0);
}

static void a_guest_that_does_not_let_go_keeps_the_drive(void **state)
{
    struct fake *fake = *state;
    struct hypervisor_drive_request request;

    start_cloud_hypervisor(fake, "1000");
    ask(fake, HYPERVISOR_DRIVE_ATTACH, DONE, PRESENT);
    request = request_for(fake, HYPERVISOR_DRIVE_DETACH);
    request.removal_ns = 1;
    ask_for(fake, &request, HYPERVISOR_DRIVE_PENDING, PRESENT);
    ask_for(fake, &request, HYPERVISOR_DRIVE_PENDING, PRESENT);
    ask(fake, HYPERVISOR_DRIVE_ATTACH, HYPERVISOR_DRIVE_PENDING, PRESENT);
}

static void many_cycles_leave_nothing_behind(void **state)
{
    struct fake *fake = *state;
    unsigned before;

    start_cloud_hypervisor(fake, "0");
    ask(fake, HYPERVISOR_DRIVE_LOOK, DONE, ABSENT);
    before = count_descriptors(fake);
    for (unsigned i = 0; i < CYCLES; i++) {
        ask(fake, HYPERVISOR_DRIVE_ATTACH, DONE, PRESENT);
        assert_string_equal(fake->reply.address, "pci:04");
        ask(fake, HYPERVISOR_DRIVE_DETACH, DONE, ABSENT);
    }
    assert_in_range(count_descriptors(fake), 1, before + 2); /* connections that are closing */
}

static void a_path_of_another_disk_is_not_attached(void **state)
{
    struct fake *fake = *state;
    struct hypervisor_drive_request request;

    start_cloud_hypervisor(fake, "1");
    request = request_for(fake, HYPERVISOR_DRIVE_ATTACH);
    request.path = fake->first;
    ask_for(fake, &request, HYPERVISOR_DRIVE_REFUSED, ABSENT);
}

/* ---- Firecracker ---------------------------------------------------------------------------- */

static void firecracker_has_the_disk_until_it_is_detached(void **state)
{
    struct fake *fake = *state;
    struct hypervisor_drive_request request;
    char serial[80];

    start_firecracker(fake, "1.16.0", "--pci");
    ask(fake, HYPERVISOR_DRIVE_ATTACH, DONE, PRESENT);
    (void)snprintf(serial, sizeof(serial), "%" PRIu64 "0%" PRIu64, (uint64_t)fake->status.st_dev,
                   (uint64_t)fake->status.st_ino);
    serial[HYPERVISOR_DRIVE_SERIAL_BYTES - 1] = '\0';
    assert_string_equal(fake->reply.serial, serial);
    request = request_for(fake, HYPERVISOR_DRIVE_LIMIT);
    request.limits.bandwidth = (struct hypervisor_bucket){1000, 100, 10};
    ask_for(fake, &request, DONE, PRESENT);
    ask(fake, HYPERVISOR_DRIVE_LIST, DONE, ABSENT);
    assert_string_equal(fake->entry.drive_id, "a-drive_1");
    ask(fake, HYPERVISOR_DRIVE_DETACH, DONE, ABSENT);
    ask(fake, HYPERVISOR_DRIVE_LIMIT, HYPERVISOR_DRIVE_NOT_ATTACHED, ABSENT);
}

static void firecracker_without_pci_is_reported(void **state)
{
    struct fake *fake = *state;

    start_firecracker(fake, "1.16.0", NULL);
    ask(fake, HYPERVISOR_DRIVE_ATTACH, HYPERVISOR_DRIVE_UNSUPPORTED, ABSENT);
    assert_non_null(strstr(fake->reply.error.text, "--enable-pci"));
}

static void the_firecracker_that_kata_ships_is_too_old(void **state)
{
    struct fake *fake = *state;

    start_firecracker(fake, "1.12.1", "--pci");
    ask(fake, HYPERVISOR_DRIVE_ATTACH, HYPERVISOR_DRIVE_VERSION, HYPERVISOR_DRIVE_UNKNOWN);
}

#define FAKE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE(cloud_hypervisor_has_the_disk_until_it_is_detached),
        FAKE(a_guest_that_does_not_let_go_keeps_the_drive),
        FAKE(many_cycles_leave_nothing_behind),
        FAKE(a_path_of_another_disk_is_not_attached),
        FAKE(firecracker_has_the_disk_until_it_is_detached),
        FAKE(firecracker_without_pci_is_reported),
        FAKE(the_firecracker_that_kata_ships_is_too_old),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
