/* SPDX-License-Identifier: Apache-2.0 */
/* evidence_text_test.c - what shows that a volume is blocked, in words: who said what. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/core/volume_pass.h"

static struct surroundings node;
static struct store_volume volume;

static int set_up(void **state)
{
    surroundings_begin(&node, true);
    surroundings_bind(&node);
    volume = get_volume(node.context.store, node.bound.volume_id);
    return 0;
}

static int tear_down(void **state)
{
    surroundings_end(&node);
    return 0;
}

static void expect(enum volume_state volume_state, enum volume_reason reason, const char *text)
{
    const struct decision decision = {.state = volume_state, .reason = reason};

    assert_int_equal(blocked_detail_record(&node.context, &volume, &decision), 0);
    assert_text_of(node.context.store, "SELECT evidence FROM volumes WHERE volume_id = 1", text);
}

static void say(char *member, size_t size, const char *text)
{
    (void)snprintf(member, size, "%s", text);
}

#define SAY(member, text) say(volume.member, sizeof(volume.member), text)

static void a_volume_that_is_not_blocked_needs_no_evidence(void **state)
{
    volume.record_contradicts = true;
    expect(STATE_IN_SYNC, REASON_NONE, NULL);
    expect(STATE_BLOCKED, REASON_READ_ONLY, NULL);
}

static void mismatch_text_names_source_and_device(void **state)
{
    expect(STATE_BLOCKED, REASON_IDENTITY_MISMATCH,
           "the metadata names /dev/disk (/dev/loop1), another disk now than the one that the VM "
           "was given under this number");
    SAY(list_error, "drive-1 is /dev/loop9");
    expect(STATE_BLOCKED, REASON_IDENTITY_MISMATCH,
           "the metadata names /dev/disk (/dev/loop1), the VMM says: drive-1 is /dev/loop9");
    volume.record_contradicts = true;
    SAY(recorded_file, "/dev/loop7");
    expect(STATE_BLOCKED, REASON_IDENTITY_MISMATCH,
           "the metadata names /dev/disk (/dev/loop1), the runtime gave the VM /dev/loop7");
    expect(STATE_DETACHED, REASON_IDENTITY_MISMATCH, NULL); /* it is not blocked */
}

static void shared_device_text_names_both_volumes(void **state)
{
    struct store_entry other = entry_of("key-2", "/other", 12);

    assert_int_equal(store_begin(node.context.store), 0);
    volume.shared_with = put_entry(node.context.store, &other, true);
    assert_int_equal(store_commit(node.context.store), 0);
    expect(STATE_BLOCKED, REASON_DEVICE_SHARED,
           "volume 1 (" VOLUME_PATH ") and volume 2 (/other) both lead to /dev/loop1");
    volume.shared_with = 99;
    expect(STATE_BLOCKED, REASON_DEVICE_SHARED, NULL);
}

static void text_names_the_drive_that_has_the_device(void **state)
{
    struct store *store = node.context.store;
    const struct store_drive_mount_request request = {.drive_id = "data",
                                                      .sandbox_id = "sandbox-1",
                                                      .host_path = "/dev/loop1",
                                                      .vm_path = "/vm",
                                                      .fs_type = "ext4"};

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_add_drive_mount(store, &request, "serial", &volume.shared_drive), 0);
    assert_int_equal(store_commit(store), 0);
    expect(STATE_BLOCKED, REASON_DEVICE_SHARED,
           "volume 1 (" VOLUME_PATH
           ") and drive data of sandbox sandbox-1 both lead to /dev/loop1");
}

static void bypassed_volume_text_names_what_the_container_has(void **state)
{
    volume.carrier = STORE_CARRIER_DIRECTORY;
    volume.list = STORE_LIST_LACKS;
    expect(STATE_BLOCKED, REASON_BYPASSED,
           "a container of sandbox sandbox-1 has the directory " VOLUME_PATH
           " of the node, by the runtime's own record; the VMM's list: no such drive");
    volume.list = STORE_LIST_UNREAD;
    volume.hypervisor_reason = REASON_MONITOR_MISSING;
    expect(STATE_BLOCKED, REASON_BYPASSED,
           "a container of sandbox sandbox-1 has the directory " VOLUME_PATH
           " of the node, by the runtime's own record; the VMM's list: monitor_missing");
    volume.carrier = STORE_CARRIER_DEVICE;
    SAY(recorded_drive_id, "drive-9");
    SAY(list_error, "only drive-1");
    expect(STATE_BLOCKED, REASON_BYPASSED,
           "a container of sandbox sandbox-1 has drive drive-9, by the runtime's own record; the "
           "VMM's list: only drive-1");
    volume.bypassed = true; /* the view says which part is mounted */
    expect(STATE_BLOCKED, REASON_BYPASSED, NULL);
}

/* Not because its pod is just starting. */
static void text_includes_the_error_of_the_vmm(void **state)
{
    SAY(hypervisor_error, "connection refused");
    expect(STATE_UNKNOWN, REASON_HYPERVISOR_UNSUPPORTED, "connection refused");
    expect(STATE_UNKNOWN, REASON_HYPERVISOR_UNREACHABLE, NULL);
    expect(STATE_IN_SYNC, REASON_UNVERIFIED, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_volume_that_is_not_blocked_needs_no_evidence),
        TEST(mismatch_text_names_source_and_device),
        TEST(shared_device_text_names_both_volumes),
        TEST(text_names_the_drive_that_has_the_device),
        TEST(bypassed_volume_text_names_what_the_container_has),
        TEST(text_includes_the_error_of_the_vmm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
