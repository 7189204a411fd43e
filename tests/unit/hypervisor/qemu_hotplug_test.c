/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_test.c - the acts upon a drive, each one call; their plan by itself is in
 * qemu_hotplug_steps_test.c.
 */
#include "tests/unit/hypervisor/qemu_monitor.h"

#define SET         "{\"fdset-id\": 3, \"fds\": [{\"fd\": $FD, \"opaque\": \"crust:data-1\"}]}"
#define CONTROLLER  "{\"name\": \"scsi0\", \"type\": \"child<virtio-scsi-pci>\"}"
#define STEM        "crust-51bbfa74f866"
#define NAMED(part) "{\"name\": \"" STEM part "\", \"type\": \"child<x>\"}"
#define READ(sets, devices, nodes, objects)                                                        \
    {"\"query-fdsets\"", LIST(sets)}, {"/machine/peripheral", LIST(devices)},                      \
        {"\"query-named-block-nodes\"", LIST(nodes)},                                              \
    {                                                                                              \
        "/objects", LIST(objects)                                                                  \
    }
#define READ_NOTHING READ("", CONTROLLER, "", "")
#define ADD_SET                                                                                    \
    {                                                                                              \
        "\"add-fd\"", "{\"return\": {\"fdset-id\": 3, \"fd\": $FD}, \"id\": \"$ID\"}\r\n"          \
    }

static void an_attach_passes_the_disk_and_adds_every_part(void **state)
{
    static const struct exchange script[] = {
        NEGOTIATED,
        READ_NOTHING,
        ADD_SET,
        {"\"object-add\"", OK},
        {"/dev/fdset/3", OK},
        {"\"serial\":\"serial-1\"", OK},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request attach = drive_request_for(monitor, HYPERVISOR_ATTACH);

    assert_int_equal(CALL(&attach, script)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_PRESENT);
    assert_string_equal(monitor->reply.address, "scsi:255:0");
    assert_string_equal(monitor->reply.serial, "serial-1");
    assert_int_equal(monitor->met, array_length(script));
}

static void an_attach_that_is_refused_takes_back_what_there_is(void **state)
{
    static const struct exchange script[] = {
        NEGOTIATED,
        READ_NOTHING,
        ADD_SET,
        {"\"object-add\"", REFUSE("no groups")},
        READ(SET, CONTROLLER, "", ""),
        {"\"remove-fd\"", EVENT OK},
        READ_NOTHING,
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request attach = drive_request_for(monitor, HYPERVISOR_ATTACH);

    assert_int_equal(CALL(&attach, script)->outcome, HYPERVISOR_REFUSED);
    assert_string_equal(monitor->reply.error.text, "no groups");
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_ABSENT);
    assert_string_equal(monitor->reply.address, "");
    assert_int_equal(monitor->met, array_length(script));
}

/* A conversation that ends in between: what there is of the drive is unknown. */
static void an_attach_that_is_cut_off_knows_nothing(void **state)
{
    static const struct {
        const char *answer, *text;
    } table[] = {
        {NULL, "the monitor: "},
        {"", "the monitor: no answer in time"},
        {OK, "add-fd: the answer has no set or no descriptor"},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request attach = drive_request_for(monitor, HYPERVISOR_ATTACH);

    for (size_t i = 0; i < array_length(table); i++) {
        const struct exchange script[] = {
            NEGOTIATED, READ_NOTHING, {"\"add-fd\"", table[i].answer}, {"\"object-add\"", OK}};

        monitor->deadline_ms = 400;
        assert_int_equal(CALL(&attach, script)->outcome, HYPERVISOR_UNREACHABLE);
        assert_non_null(strstr(monitor->reply.error.text, table[i].text));
        assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_UNKNOWN);
    }
}

static void a_detach_waits_for_the_guest(void **state)
{
#define ATTACHED READ("", CONTROLLER ", " NAMED(""), "", "")
    static const struct exchange script[] = {
        NEGOTIATED, ATTACHED, {"\"device_del\"", OK EVENT}, ATTACHED, READ_NOTHING};
    struct monitor *monitor = *state;
    struct hypervisor_request detach = drive_request_for(monitor, HYPERVISOR_DETACH);

    detach.removal_ns = 5 * NSEC_PER_SEC;
    assert_int_equal(CALL(&detach, script)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_ABSENT);
}

static void a_detach_that_a_guest_does_not_answer_is_pending(void **state)
{
    static const struct exchange script[] = {
        NEGOTIATED, ATTACHED, {"\"device_del\"", OK}, ATTACHED, ATTACHED, ATTACHED, ATTACHED};
    struct monitor *monitor = *state;
    struct hypervisor_request detach = drive_request_for(monitor, HYPERVISOR_DETACH);

    /* Looked at once, after 10 ms, and after 20 ms more. */
    assert_int_equal(CALL(&detach, script)->outcome, HYPERVISOR_PENDING);
    assert_string_equal(monitor->reply.error.text, "the guest has not let go of the device");
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_PRESENT);
}

static void a_flood_of_events_is_no_reason_to_look_each_time(void **state)
{
    enum { LOOKS = 40 };
    static const struct exchange first[] = {NEGOTIATED, ATTACHED, {"\"device_del\"", OK}};
    static const struct exchange again[] = {ATTACHED};
    struct exchange script[array_length(first) + LOOKS * array_length(again)];
    struct monitor *monitor = *state;
    struct hypervisor_request detach = drive_request_for(monitor, HYPERVISOR_DETACH);

    memcpy(script, first, sizeof(first));
    for (size_t i = 0; i < LOOKS; i++) {
        struct exchange *look = &script[array_length(first) + i * array_length(again)];

        memcpy(look, again, sizeof(again));
        look[array_length(again) - 1].answer = LIST("") EVENT EVENT;
    }
    detach.removal_ns = 3 * NSEC_PER_SEC;
    monitor->deadline_ms = 1000;
    assert_int_equal(CALL(&detach, script)->outcome, HYPERVISOR_UNREACHABLE);
    assert_in_range((monitor->met - array_length(first)) / array_length(again), 33, LOOKS - 1);
}

static void a_drive_is_looked_at_limited_and_resized(void **state)
{
#define HOST_NODE(part, driver, file) NODE(STEM part, driver, file, "1024")
#define WHOLE                                                                                      \
    READ(SET, CONTROLLER ", " NAMED(""),                                                           \
         HOST_NODE("-f", "file", "/dev/fdset/3") ", " HOST_NODE(                                   \
             "-r", "raw", "/dev/fdset/3") ", " HOST_NODE("-t", "throttle", "/dev/fdset/3"),        \
         NAMED("-g"))
#define VALUE(value) "{\"return\": " value ", \"id\": \"$ID\"}\r\n"
    static const struct exchange looks[] = {NEGOTIATED,
                                            WHOLE,
                                            {"\"scsi-id\"", VALUE("254")},
                                            {"\"lun\"", VALUE("7")},
                                            {"\"serial\"", VALUE("\"abc\"")}};
    static const struct exchange nonsense[] = {NEGOTIATED,
                                               WHOLE,
                                               {"\"scsi-id\"", VALUE("256")},
                                               {"\"lun\"", VALUE("7")},
                                               {"\"serial\"", VALUE("\"abc\"")}};
    static const struct exchange limits[] = {NEGOTIATED, WHOLE, {"\"qom-set\"", OK}};
    static const struct exchange resizes[] = {NEGOTIATED, WHOLE, {"\"block_resize\"", OK}};
    static const struct exchange lacks[] = {NEGOTIATED, READ_NOTHING};
    static const struct exchange refused[] = {
        NEGOTIATED, {"query-fdsets", REFUSE("no")}, ANY, ANY, ANY};
    struct monitor *monitor = *state;
    struct hypervisor_request request = drive_request_for(monitor, HYPERVISOR_QUERY);

    assert_int_equal(CALL(&request, looks)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_PRESENT);
    assert_string_equal(monitor->reply.address, "scsi:254:7");
    assert_string_equal(monitor->reply.serial, "abc");
    assert_int_equal(CALL(&request, nonsense)->outcome, HYPERVISOR_UNREACHABLE);
    assert_int_equal(CALL(&request, refused)->outcome, HYPERVISOR_UNREACHABLE);
    assert_string_equal(monitor->reply.error.text, "query-fdsets: no");
    request.act = HYPERVISOR_LIMIT;
    assert_int_equal(CALL(&request, limits)->outcome, HYPERVISOR_DONE);
    request.act = HYPERVISOR_RESIZE;
    assert_int_equal(CALL(&request, resizes)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 2048);
    assert_int_equal(CALL(&request, lacks)->outcome, HYPERVISOR_NOT_ATTACHED);
    assert_int_equal(monitor->reply.bytes, 0);
}

static void a_list_shows_every_drive_and_its_disk(void **state)
{
    static const struct exchange script[] = {
        NEGOTIATED,
        {"\"query-fdsets\"", LIST(SET)},
        {"/machine/peripheral", LIST(NAMED(""))},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request list = drive_request_for(monitor, HYPERVISOR_LIST);
    const struct hypervisor_drive_entry *entry;

    list.drive_id = NULL;
    assert_int_equal(CALL(&list, script)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.entry_count, 1);
    entry = monitor->reply.entries;
    assert_string_equal(entry->drive_id, "data-1");
    assert_int_equal(entry->state, HYPERVISOR_DRIVE_PRESENT);
    assert_true(entry->identified && entry->disk.regular_file);
    assert_int_equal(entry->disk.inode, monitor->disk_status.st_ino);
    free((void *)(uintptr_t)entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scripted(an_attach_passes_the_disk_and_adds_every_part),
        scripted(an_attach_that_is_refused_takes_back_what_there_is),
        scripted(an_attach_that_is_cut_off_knows_nothing),
        scripted(a_detach_waits_for_the_guest),
        scripted(a_detach_that_a_guest_does_not_answer_is_pending),
        scripted(a_flood_of_events_is_no_reason_to_look_each_time),
        scripted(a_drive_is_looked_at_limited_and_resized),
        scripted(a_list_shows_every_drive_and_its_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
