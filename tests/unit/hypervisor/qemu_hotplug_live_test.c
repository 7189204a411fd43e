/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_live_test.c - drives attached to a real QEMU, and detached. */
#define _GNU_SOURCE 1
#include "tests/unit/hypervisor/qemu_hotplug_live.h"

enum { CYCLES = 500 };

static void a_disk_is_claimed_while_attached(void **state)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_LOOK, "one");

    (void)state;
    if (!live.qemu)
        skip();
    attach("one");
    assert_string_equal(live.reply.address, "scsi:255:0");
    assert_string_equal(live.reply.serial, "crust-abcdefghijklmn");
    assert_claimed();
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT);
    assert_string_equal(live.reply.address, "scsi:255:0");
    detach("one");
    assert_free();
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT);
    detach("one");
    assert_nothing_left();
}

/* ---- what QEMU has ---- */

static unsigned count_descriptors(void)
{
    char path[48];
    DIR *names;
    unsigned count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)live.qemu);
    names = opendir(path);
    assert_non_null(names);
    while (readdir(names))
        count++;
    assert_int_equal(closedir(names), 0);
    return count;
}

static void many_cycles_leave_nothing(void **state)
{
    unsigned before = 0;

    (void)state;
    if (!live.qemu)
        skip();
    for (unsigned i = 0; i < CYCLES; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "cycle-%u", i);
        attach(id);
        assert_string_equal(live.reply.address, "scsi:255:0");
        detach(id);
        if (i == 0)
            before = count_descriptors();
    }
    /* QEMU may open one or two that it keeps, for its threads; what leaks would be CYCLES. */
    assert_in_range(count_descriptors(), 1, before + CYCLES / 100);
    assert_nothing_left();
    assert_free();
}

static void a_call_that_ends_anywhere_leaves_no_claim(void **state)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, "broken");
    bool was_done = false;

    (void)state;
    if (!live.qemu)
        skip();
    for (unsigned rounds = 1; !was_done; rounds++) {
        struct hypervisor_drive_call *call;
        struct error error;

        request.descriptor = claim(O_RDWR);
        assert_true(request.descriptor >= 0);
        live.reply.outcome = HYPERVISOR_DRIVE_OUTCOMES;
        assert_int_equal(hypervisor_drive_call_new(&live.loop, HYPERVISOR_QEMU, &request, on_done,
                                                   NULL, &call, &error),
                         0);
        for (unsigned i = 0; i < rounds && live.reply.outcome == HYPERVISOR_DRIVE_OUTCOMES; i++)
            loop_run_once(&live.loop);
        was_done = live.reply.outcome != HYPERVISOR_DRIVE_OUTCOMES;
        if (!was_done)
            (void)hypervisor_drive_call_free(call);
        fd_close(request.descriptor);
        detach("broken");
        assert_nothing_left();
        assert_free();
    }
    assert_int_equal(live.reply.outcome, HYPERVISOR_DRIVE_DONE);
}

static void the_claim_ends_with_qemu(void **state)
{
    (void)state;
    if (!live.qemu)
        skip();
    attach("lost");
    assert_claimed();
    end_qemu();
    assert_free();
    start_qemu();
    assert_nothing_left();
}

static void a_read_only_disk_is_claimed_too(void **state)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, "reader");

    (void)state;
    if (!live.qemu)
        skip();
    request.read_only = true;
    request.descriptor = claim(O_RDONLY);
    assert_true(request.descriptor >= 0);
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT);
    fd_close(request.descriptor);
    assert_claimed();
    request.descriptor = -1;
    request.read_only = false;
    ask(&request, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT);
    detach("reader");
    assert_free();
}

/* ---- growth ---- */

static void grow_disk(uint64_t bytes)
{
    assert_int_equal(ftruncate(live.image, (off_t)bytes), 0);
    assert_int_equal(ioctl(live.loop_device, LOOP_SET_CAPACITY, 0), 0);
}

static void an_attached_disk_grows(void **state)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_RESIZE, "growing");
    char size[64];

    (void)state;
    if (!live.qemu)
        skip();
    request.bytes = 2 * IMAGE_BYTES;
    ask(&request, HYPERVISOR_DRIVE_NOT_ATTACHED, HYPERVISOR_DRIVE_ABSENT);
    attach("growing");
    ask(&request, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_PRESENT); /* it has not grown */
    (void)snprintf(size, sizeof(size), "\"virtual-size\": %d,", 2 * IMAGE_BYTES);
    assert_null(strstr(by_hand("\"execute\": \"query-block\""), size));
    grow_disk(2 * IMAGE_BYTES);
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT);
    assert_int_equal(live.reply.bytes, 2 * IMAGE_BYTES);
    assert_non_null(strstr(by_hand("\"execute\": \"query-block\""), size));
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT); /* again */
    request.disk.device++;
    ask(&request, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT);
    detach("growing");
    grow_disk(IMAGE_BYTES);
}

static void a_regular_file_keeps_its_size(void **state)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, "file");
    struct stat status;

    (void)state;
    if (!live.qemu)
        skip();
    request.disk = (struct hypervisor_disk){
        .regular_file = true, .device = live.file_stat.st_dev, .inode = live.file_stat.st_ino};
    request.descriptor = open(live.file, O_RDWR | O_CLOEXEC);
    assert_true(request.descriptor >= 0);
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT);
    fd_close(request.descriptor);
    request.act = HYPERVISOR_DRIVE_RESIZE;
    request.descriptor = -1;
    request.bytes = IMAGE_BYTES / 2;
    ask(&request, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_UNKNOWN);
    assert_int_equal(stat(live.file, &status), 0);
    assert_int_equal(status.st_size, IMAGE_BYTES);
    detach("file");
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_is_claimed_while_attached),
        cmocka_unit_test(many_cycles_leave_nothing),
        cmocka_unit_test(a_call_that_ends_anywhere_leaves_no_claim),
        cmocka_unit_test(a_read_only_disk_is_claimed_too),
        cmocka_unit_test(an_attached_disk_grows),
        cmocka_unit_test(a_regular_file_keeps_its_size),
        cmocka_unit_test(the_claim_ends_with_qemu),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
