/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_live_test.c - a real QEMU without a guest, its drives on loop devices that really grow.
 *
 * One QEMU for all tests, with a drive of every kind. That the guest is told takes a guest; this is
 * about finding the drives and about what QEMU answers. Skipped where QEMU is not installed or no
 * loop device can be made.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

#define QEMU "/usr/bin/qemu-system-x86_64"

enum { MEBIBYTE = 1024 * 1024, START_MEBIBYTES = 8, ATTEMPTS = 3000, BUSY = 30, ARGUMENTS = 96 };

/* Each drive has a disk of its own: QEMU's image locks forbid to resize one that is open twice. */
enum disk { PLAIN, LINK, SET, READ_ONLY, THROTTLE, OFFSET, NVME, LEGACY, UNUSED, DISKS };

struct live {
    char directory[SCRATCH_BYTES];
    int images[DISKS];
    int loops[DISKS]; /* autoclear: closing the last descriptor frees the device */
    char devices[DISKS][32];
    dev_t numbers[DISKS];
    char link[96], file[96], qmp[96];
    struct stat file_stat;
    int root;
    pid_t qemu;
    struct hypervisor_reply reply;
};

static struct live live;

static int make_loop(enum disk disk)
{
    cleanup(fd_closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {.info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    char image[96];
    struct stat st;

    (void)snprintf(image, sizeof(image), "%s/%d.img", live.directory, (int)disk);
    live.images[disk] = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (control < 0 || ftruncate(live.images[disk], START_MEBIBYTES * MEBIBYTE) < 0)
        return -errno;
    config.fd = (unsigned)live.images[disk];
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0)
            return -errno;
        (void)snprintf(live.devices[disk], sizeof(live.devices[disk]), "/dev/loop%d", number);
        live.loops[disk] = open(live.devices[disk], O_RDWR | O_CLOEXEC);
        if (live.loops[disk] < 0)
            return -errno;
        if (ioctl(live.loops[disk], LOOP_CONFIGURE, &config) == 0)
            break;
        fd_close(take_fd(&live.loops[disk])); /* somebody else was faster */
    }
    if (live.loops[disk] < 0 || fstat(live.loops[disk], &st) < 0)
        return -EBUSY;
    live.numbers[disk] = st.st_rdev;
    return 0;
}

static uint64_t grow(enum disk disk)
{
    struct stat st;

    assert_int_equal(fstat(live.images[disk], &st), 0);
    assert_int_equal(ftruncate(live.images[disk], st.st_size + MEBIBYTE), 0);
    assert_int_equal(ioctl(live.loops[disk], LOOP_SET_CAPACITY, 0), 0);
    return (uint64_t)st.st_size + MEBIBYTE;
}

/* The command line */

struct command {
    char *arguments[ARGUMENTS];
    size_t count;
};

__attribute__((format(printf, 2, 3))) static void add(struct command *command, const char *format,
                                                      ...)
{
    va_list list;

    assert_true(command->count + 1 < ARGUMENTS);
    va_start(list, format);
    assert_true(vasprintf(&command->arguments[command->count++], format, list) >= 0);
    va_end(list);
}

static void add_drive(struct command *command, const char *name, const char *layer,
                      const char *driver, const char *file, const char *device)
{
    add(command, "-blockdev");
    add(command, "{\"node-name\":\"%s\",%s,\"file\":{\"driver\":\"%s\",\"filename\":\"%s\"}}", name,
        layer, driver, file);
    add(command, "-device");
    add(command, "%s,drive=%s,id=%s,share-rw=on", device, name, name);
}

static void add_drives(struct command *command)
{
    static const char raw[] = "\"driver\":\"raw\"";

    add_drive(command, "drive-0123456789abcdef", raw, "host_device", live.devices[PLAIN],
              "virtio-blk-pci");
    add_drive(command, "drive-link", raw, "host_device", live.link, "scsi-hd");
    add_drive(command, "drive-1", raw, "host_device", "/dev/fdset/2", "scsi-hd");
    add_drive(command, "drive-ro", "\"driver\":\"raw\",\"read-only\":true", "host_device",
              live.devices[READ_ONLY], "virtio-blk-pci");
    add_drive(command, "drive-throttle", "\"driver\":\"throttle\",\"throttle-group\":\"group\"",
              "host_device", live.devices[THROTTLE], "virtio-blk-pci");
    add_drive(command, "drive-offset", "\"driver\":\"raw\",\"offset\":1048576", "host_device",
              live.devices[OFFSET], "virtio-blk-pci");
    add_drive(command, "drive-file", raw, "file", live.file, "virtio-blk-pci");
    add(command, "-blockdev");
    add(command,
        "{\"node-name\":\"drive-nvme\",\"driver\":\"raw\",\"file\":{\"driver\":\"host_device\","
        "\"filename\":\"%s\"}}",
        live.devices[NVME]);
    add(command, "-device");
    add(command, "nvme,serial=x,drive=drive-nvme");
    add(command, "-drive");
    add(command, "if=none,id=legacy,format=raw,file=%s", live.devices[LEGACY]);
    add(command, "-device");
    /* as runtimes do */
    add(command, "virtio-blk-pci,drive=legacy,share-rw=on");
}

static void build_command(struct command *command, int set_fd)
{
    static const char *const fixed[] = {
        QEMU,
        "-accel",
        "tcg",
        "-M",
        "q35",
        "-m",
        "64",
        "-nodefaults",
        "-display",
        "none",
        "-S",
        "-object",
        "throttle-group,id=group",
        "-device",
        "virtio-scsi-pci",
    };

    for (size_t i = 0; i < array_length(fixed); i++)
        add(command, "%s", fixed[i]);
    add(command, "-chardev");
    add(command, "socket,id=q,path=%s,server=on,wait=off", live.qmp);
    add(command, "-mon");
    add(command, "chardev=q,mode=control");
    add(command, "-add-fd");
    add(command, "fd=%d,set=2,opaque=kata-block:drive-1:block-source", set_fd);
    add_drives(command);
}

static pid_t spawn(void)
{
    struct command command = {.count = 0};
    int set_fd = dup(live.loops[SET]); /* without close-on-exec */
    pid_t pid;

    build_command(&command, set_fd);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execv(QEMU, command.arguments);
        _exit(127);
    }
    fd_close(set_fd);
    for (size_t i = 0; i < command.count; i++)
        free(command.arguments[i]);
    return pid;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    return take_fd(&fd);
}

/* Until its monitor is there; false if QEMU ended instead. */
static bool wait_for_monitor(void)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};

    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        cleanup(fd_closep) int monitor = connect_to(live.qmp);

        if (monitor >= 0)
            return true;
        if (waitpid(live.qemu, NULL, WNOHANG) != 0) {
            live.qemu = 0;
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static bool make_disks(void)
{
    int fd;

    if (scratch_directory_make(live.directory) < 0)
        return false;
    (void)snprintf(live.link, sizeof(live.link), "%s/link", live.directory);
    (void)snprintf(live.file, sizeof(live.file), "%s/file", live.directory);
    (void)snprintf(live.qmp, sizeof(live.qmp), "%s/q.sock", live.directory);
    for (enum disk disk = 0; disk < DISKS; disk++) {
        if (make_loop(disk) < 0)
            return false;
    }
    fd = open(live.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, START_MEBIBYTES * MEBIBYTE) < 0 || fstat(fd, &live.file_stat) < 0)
        return false;
    fd_close(fd);
    return symlink(live.devices[LINK], live.link) == 0;
}

static int set_up(void **state)
{
    for (enum disk disk = 0; disk < DISKS; disk++)
        live.images[disk] = live.loops[disk] = -1;
    assert_int_equal(path_open_root("/", &live.root), 0);
    if (access(QEMU, X_OK) < 0) {
        print_message("skipped: %s is not installed\n", QEMU);
    } else if (!make_disks()) {
        print_message("skipped: no loop devices can be made here\n");
    } else {
        live.qemu = spawn();
        assert_true(wait_for_monitor());
    }
    return 0;
}

static int tear_down(void **state)
{
    if (live.qemu > 0) {
        (void)kill(live.qemu, SIGKILL);
        (void)waitpid(live.qemu, NULL, 0);
    }
    for (enum disk disk = 0; disk < DISKS; disk++) {
        fd_close(live.loops[disk]);
        fd_close(live.images[disk]);
    }
    fd_close(live.root);
    return live.directory[0] ? scratch_directory_remove(live.directory) : 0;
}

/* The monitor is nobody else's, so it is busy only while QEMU gets no processor to let the last
 * client go and to greet this one, as on a machine with other tests. */
static enum hypervisor_outcome ask(const struct hypervisor_request *request)
{
    for (unsigned i = 0; i == 0 || (i <= BUSY && live.reply.outcome == HYPERVISOR_BUSY); i++) {
        live.reply = (struct hypervisor_reply){.bytes = 0};
        qemu_act(request, clock_boottime() + 60 * NSEC_PER_SEC, &live.reply);
    }
    return live.reply.outcome;
}

static struct hypervisor_request request_for(enum hypervisor_act act, enum disk disk,
                                             uint64_t bytes)
{
    return (struct hypervisor_request){
        .act = act,
        .root = live.root,
        .control_socket = live.qmp,
        .vmm_pid = live.qemu,
        .disk = {.device = live.numbers[disk]},
        .bytes = bytes,
    };
}

static void expect(enum hypervisor_act act, enum disk disk, uint64_t bytes,
                   enum hypervisor_outcome outcome, uint64_t reported)
{
    struct hypervisor_request request = request_for(act, disk, bytes);

    if (ask(&request) != outcome)
        print_error("disk %d: %s\n", (int)disk, live.reply.error.text);
    assert_int_equal(live.reply.outcome, outcome);
    assert_int_equal(live.reply.bytes, reported);
}

/* As long as nobody tells it, QEMU knows the old size, or now and then has read the new one. */
static void expect_either(enum disk disk, uint64_t before, uint64_t after)
{
    struct hypervisor_request request = request_for(HYPERVISOR_QUERY, disk, after);

    assert_int_equal(ask(&request), HYPERVISOR_DONE);
    assert_true(live.reply.bytes == before || live.reply.bytes == after);
}

static void growing_drives_are_found(void **state)
{
    static const struct {
        enum disk disk;
        const char *drive;
    } drives[] = {
        {PLAIN, "drive-0123456789abcdef"}, {LINK, "drive-link"}, {SET, "drive-1"},
        {THROTTLE, "drive-throttle"},      {LEGACY, NULL}, /* a name that QEMU makes up */
    };

    if (!live.qemu)
        skip();
    for (size_t i = 0; i < array_length(drives); i++) {
        enum disk disk = drives[i].disk;
        uint64_t bytes = grow(disk);

        expect_either(disk, bytes - MEBIBYTE, bytes);
        if (drives[i].drive)
            assert_string_equal(live.reply.drive_id, drives[i].drive);
        else
            assert_int_equal(live.reply.drive_id[0], '#');
        expect(HYPERVISOR_RESIZE, disk, bytes, HYPERVISOR_DONE, bytes);
        expect(HYPERVISOR_RESIZE, disk, bytes, HYPERVISOR_DONE, bytes);
        expect(HYPERVISOR_QUERY, disk, bytes, HYPERVISOR_DONE, bytes);
    }
}

static void assert_address(enum disk disk, const char *address)
{
    struct hypervisor_request request =
        request_for(HYPERVISOR_QUERY, disk, START_MEBIBYTES * MEBIBYTE);

    request.wants_address = true;
    assert_int_equal(ask(&request), HYPERVISOR_DONE);
    assert_string_equal(live.reply.address, address);
    request.wants_address = false;
    assert_int_equal(ask(&request), HYPERVISOR_DONE);
    assert_string_equal(live.reply.address, "");
}

static void guest_address_of_a_drive_is_reported(void **state)
{
    if (!live.qemu)
        skip();
    assert_address(PLAIN, "pci:02");
    assert_address(LINK, "scsi:0:0");
    assert_address(SET, "scsi:1:0");
}

static void others_are_refused(void **state)
{
    const uint64_t size = START_MEBIBYTES * MEBIBYTE;

    if (!live.qemu)
        skip();
    expect(HYPERVISOR_QUERY, READ_ONLY, size, HYPERVISOR_DONE, size);
    assert_int_equal(live.reply.resize, HYPERVISOR_READ_ONLY);
    expect(HYPERVISOR_RESIZE, READ_ONLY, size, HYPERVISOR_READ_ONLY, size);
    expect(HYPERVISOR_RESIZE, OFFSET, size, HYPERVISOR_UNSUPPORTED, size - MEBIBYTE);
    expect(HYPERVISOR_RESIZE, NVME, size, HYPERVISOR_UNSUPPORTED, size);
    expect(HYPERVISOR_RESIZE, UNUSED, size, HYPERVISOR_DRIVE_NOT_FOUND, 0);
}

/* The device has not grown as far as is asked for: only QMP's request can show that by itself. */
static void a_race_is_refused(void **state)
{
    struct stat st;

    if (!live.qemu)
        skip();
    assert_int_equal(fstat(live.images[PLAIN], &st), 0);
    expect(HYPERVISOR_RESIZE, PLAIN, (uint64_t)st.st_size * 2, HYPERVISOR_REFUSED,
           (uint64_t)st.st_size);
}

static void never_truncates_a_file(void **state)
{
    struct hypervisor_request request;
    struct stat st;

    if (!live.qemu)
        skip();
    request = request_for(HYPERVISOR_QUERY, UNUSED, MEBIBYTE);
    request.disk = (struct hypervisor_disk){true, live.file_stat.st_dev, live.file_stat.st_ino};
    assert_int_equal(ask(&request), HYPERVISOR_DONE);
    assert_string_equal(live.reply.drive_id, "drive-file");
    assert_int_equal(live.reply.bytes, START_MEBIBYTES * MEBIBYTE);
    request.act = HYPERVISOR_RESIZE;
    assert_int_equal(ask(&request), HYPERVISOR_UNSUPPORTED);
    assert_int_equal(stat(live.file, &st), 0);
    assert_int_equal(st.st_size, START_MEBIBYTES * MEBIBYTE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_drives_are_found),
        cmocka_unit_test(guest_address_of_a_drive_is_reported),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(a_race_is_refused),
        cmocka_unit_test(never_truncates_a_file),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
