/* SPDX-License-Identifier: Apache-2.0 */
/* uevent_codec_test.c - datagrams as the kernel sends them, and as nobody should. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "watch/watch_internal.h"

/* The text is a literal whose strings are separated by \0; its own NUL stands for the receiver's.
 */
#define PARSE(text, event) uevent_parse((char[sizeof(text)]){text}, sizeof(text) - 1, event)

static void reads_resize_of_a_loop_device(void **state)
{
    char data[] = "change@/devices/virtual/block/loop0\0ACTION=change\0"
                  "DEVPATH=/devices/virtual/block/loop0\0SUBSYSTEM=block\0RESIZE=1\0MAJOR=7\0"
                  "MINOR=3\0DEVNAME=loop3\0DEVTYPE=disk\0DISKSEQ=15\0SEQNUM=6831\0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_string_equal(event.devpath, "/devices/virtual/block/loop0");
    assert_string_equal(event.subsystem, "block");
    assert_true(event.has_number && event.major == 7 && event.minor == 3);
    assert_false(event.capacity_changed);
}

static void reads_device_mapper_with_its_own_key_first(void **state)
{
    char data[] = "change@/devices/virtual/block/dm-0\0DM_COOKIE=6291456\0MINOR=0\0RESIZE=1\0"
                  "MAJOR=253\0SUBSYSTEM=block\0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_true(event.has_number && event.major == 253 && event.minor == 0);
}

/* The next three were recorded from Linux 6.1: a disk grew, was read, was rescanned; then the dm
 * device on it was given a larger table. */
static void reads_scsi_unit_attention(void **state)
{
    char data[] =
        "change@/devices/pci0000:00/0000:00:04.0/virtio0/host0/target0:0:1/0:0:1:0\0ACTION=change\0"
        "DEVPATH=/devices/pci0000:00/0000:00:04.0/virtio0/host0/target0:0:1/0:0:1:0\0"
        "SUBSYSTEM=scsi\0SDEV_UA=CAPACITY_DATA_HAS_CHANGED\0DEVTYPE=scsi_device\0DRIVER=sd\0"
        "MODALIAS=scsi:t-0x00\0SEQNUM=628\0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_true(event.capacity_changed);
    assert_string_equal(event.subsystem, "scsi");
    assert_string_equal(event.devpath, "/devices/pci0000:00/0000:00:04.0/virtio0/host0/"
                                       "target0:0:1/0:0:1:0");
    assert_false(event.has_number);
}

static void reads_a_rescanned_disk(void **state)
{
    char data[] = "change@/devices/pci0000:00/0000:00:04.0/virtio0/host0/target0:0:1/0:0:1:0/block/"
                  "sda\0ACTION=change\0DEVPATH=/devices/pci0000:00/0000:00:04.0/virtio0/host0/"
                  "target0:0:1/0:0:1:0/block/sda\0SUBSYSTEM=block\0RESIZE=1\0MAJOR=8\0MINOR=0\0"
                  "DEVNAME=sda\0DEVTYPE=disk\0DISKSEQ=1\0SEQNUM=630\0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_true(event.has_number && event.major == 8 && event.minor == 0);
    assert_false(event.capacity_changed);
}

static void reads_a_resumed_dm_device(void **state)
{
    char data[] = "change@/devices/virtual/block/dm-0\0ACTION=change\0"
                  "DEVPATH=/devices/virtual/block/dm-0\0SUBSYSTEM=block\0DM_COOKIE=6488064\0"
                  "RESIZE=1\0MAJOR=254\0MINOR=0\0DEVNAME=dm-0\0DEVTYPE=disk\0DISKSEQ=4\0"
                  "SEQNUM=631\0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_true(event.has_number && event.major == 254 && event.minor == 0);
}

static void reads_a_last_string_without_a_nul_of_its_own(void **state)
{
    char data[] = "change@/devices/virtual/block/loop0\0SUBSYSTEM=block\0SYNTH_UUID=0\0"
                  "SYNTH_ARG_RESIZE=1\0MAJOR=7\0MINOR=0";
    struct uevent event;

    assert_int_equal(uevent_parse(data, sizeof(data) - 1, &event), 0);
    assert_true(event.has_number); /* the last string had no NUL of its own */
}

static void refuses_malformed_numbers(void **state)
{
    struct uevent event;

    assert_int_equal(PARSE("add@/x\0MAJOR=7\0MINOR=4294967296\0", &event), 0);
    assert_false(event.has_number);
    assert_int_equal(PARSE("add@/x\0MAJOR=\0MINOR=1\0", &event), 0);
    assert_false(event.has_number);
    assert_int_equal(PARSE("add@/x\0MAJOR=7\0MINOR=-1\0", &event), 0);
    assert_false(event.has_number);
    assert_int_equal(PARSE("add@/x\0MAJOR=7\0MINOR=1 \0", &event), 0);
    assert_false(event.has_number);
}

static void refuses_malformed_uevents(void **state)
{
    struct uevent event;

    assert_int_equal(PARSE("", &event), -EBADMSG);
    assert_int_equal(PARSE("\0\0\0", &event), -EBADMSG);
    assert_int_equal(PARSE("libudev\0\xfe\xed\xca\xfe", &event), -EBADMSG);
    assert_int_equal(PARSE("@/devices", &event), -EBADMSG);
    assert_int_equal(PARSE("change@", &event), -EBADMSG);
    assert_int_equal(PARSE("change@devices", &event), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_resize_of_a_loop_device),
        cmocka_unit_test(reads_device_mapper_with_its_own_key_first),
        cmocka_unit_test(reads_scsi_unit_attention),
        cmocka_unit_test(reads_a_rescanned_disk),
        cmocka_unit_test(reads_a_resumed_dm_device),
        cmocka_unit_test(reads_a_last_string_without_a_nul_of_its_own),
        cmocka_unit_test(refuses_malformed_numbers),
        cmocka_unit_test(refuses_malformed_uevents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
