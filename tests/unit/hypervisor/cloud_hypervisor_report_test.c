/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_report_test.c - what the bodies mean; how versions are written. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "tests/unit/hypervisor/http_answer.h"

static enum hypervisor_outcome read_with(struct http_answer *answer, vmm_http_reader *reader,
                                         const char *body)
{
    http_answer_init(answer, &cloud_hypervisor_kind, body, strlen(body));
    return vmm_http_read(&answer->http, reader);
}

static enum hypervisor_outcome read_ping(const char *body, char *ret_version)
{
    cleanup(http_answer_done) struct http_answer answer;
    enum hypervisor_outcome outcome = read_with(&answer, cloud_hypervisor_kind.read_version, body);

    strcpy(ret_version, answer.reply.version);
    if (outcome == HYPERVISOR_VERSION)
        assert_true(strstr(answer.reply.error.text, ret_version + (*ret_version == 'v')) &&
                    strstr(answer.reply.error.text, "needs Cloud Hypervisor 52 or later"));
    return outcome;
}

static enum hypervisor_outcome check(const char *version)
{
    char body[64], read[HYPERVISOR_VERSION_BYTES];

    (void)snprintf(body, sizeof(body), "{\"version\":\"%s\"}", version);
    return read_ping(body, read);
}

static void knows_versions(void **state)
{
    static const char *const can[] = {"52.0.0",           "v52.0", "52.0", "v52.0-dirty",
                                      "v53.1-12-gabcdef", "v100"};
    static const char *const cannot[] = {"v51.1", "51.2", "51.0.1", "v9.0", "",
                                         "v",     "vv52", "-1",     "main"};

    for (size_t i = 0; i < array_length(can); i++)
        assert_int_equal(check(can[i]), HYPERVISOR_DONE);
    for (size_t i = 0; i < array_length(cannot); i++)
        assert_int_equal(check(cannot[i]), HYPERVISOR_VERSION);
}

static void reads_a_ping(void **state)
{
    char version[HYPERVISOR_VERSION_BYTES];

    assert_int_equal(read_ping("{\"version\":\"v52\\u001b\"}", version), HYPERVISOR_DONE);
    assert_string_equal(version, "v52\\u001b");
    assert_int_equal(read_ping("{\"version\":52}", version), HYPERVISOR_UNREACHABLE);
    assert_int_equal(read_ping("[]", version), HYPERVISOR_UNREACHABLE);
    assert_int_equal(read_ping("", version), HYPERVISOR_UNREACHABLE);
}

static enum hypervisor_outcome read_info(const char *body, struct drive_report *ret_report)
{
    struct http_answer answer;
    enum hypervisor_outcome outcome = read_with(&answer, cloud_hypervisor_kind.read_list, body);

    *ret_report = answer.http.drives;
    answer.http.drives = (struct drive_report){.count = 0};
    http_answer_done(&answer);
    return outcome;
}

static void reads_disks(void **state)
{
    struct drive_report report;

    assert_int_equal(read_info("{\"state\":\"Running\",\"config\":{\"disks\":["
                               "{\"id\":\"_disk0\",\"path\":\"/dev/sdb\",\"readonly\":true},"
                               "{\"id\":\"_disk1\",\"vhost_user\":true,\"vhost_socket\":\"/x\"},"
                               "{\"id\":\"_disk2\",\"path\":\"/y\",\"image_type\":\"Unknown\"}]}}",
                               &report),
                     HYPERVISOR_DONE);
    assert_int_equal(report.count, 2);
    assert_string_equal(report.entries[0].path, "/dev/sdb");
    assert_true(report.entries[0].read_only);
    assert_string_equal(report.entries[1].id, "_disk2");
    assert_null(report.entries[1].obstacle);
    drive_report_done(&report);
    assert_int_equal(read_info("{\"state\":\"Running\",\"config\":{}}", &report), HYPERVISOR_DONE);
    assert_int_equal(read_info("{\"state\":\"Running\",\"config\":{\"disks\":null}}", &report),
                     HYPERVISOR_DONE);
    assert_int_equal(report.count, 0);
}

static unsigned resolved;

/* In the place of the product's own: all paths lead to the device, and the process has it open. */
int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk)
{
    resolved++;
    *ret_disk = (struct hypervisor_disk){.device = 1};
    return 0;
}

enum vmm_holding vmm_process_holds(struct vmm_process *process, const struct hypervisor_disk *disk)
{
    resolved++;
    return VMM_HOLDS;
}

static enum hypervisor_outcome find_recorded(const struct drive_report *report,
                                             const char *recorded)
{
    struct vmm_process process = {.pid = 0};
    const struct hypervisor_request wanted = {
        .act = HYPERVISOR_RESIZE, .disk = {.device = 1}, .recorded_drive = recorded};
    const struct drive *drive = NULL;
    struct error error;

    resolved = 0;
    return drive_report_find(report, &wanted, &process, &drive, &error);
}

static void recorded_disk_is_examined_first(void **state)
{
    struct drive_report report;

    assert_int_equal(read_info("{\"state\":\"Running\",\"config\":{\"disks\":["
                               "{\"id\":\"_disk0\",\"path\":\"/a\"},"
                               "{\"id\":\"_disk1\",\"path\":\"/b\"},"
                               "{\"id\":\"_disk2\",\"path\":\"/c\"}]}}",
                               &report),
                     HYPERVISOR_DONE);
    assert_int_equal(find_recorded(&report, "_disk2"), HYPERVISOR_DONE);
    assert_int_equal(resolved, 2); /* and what is open */
    assert_int_equal(find_recorded(&report, NULL), HYPERVISOR_DRIVE_NOT_FOUND);
    assert_int_equal(resolved, 3); /* which of them is unknown */
    drive_report_done(&report);
}

/* As Cloud Hypervisor shows it: the disk's parent in the tree has the address. */
#define PLACED(parent, bdf)                                                                        \
    "{\"state\":\"Running\",\"config\":{\"disks\":[{\"id\":\"_disk2\",\"path\":\"/dev/dm-0\"}]},"  \
    "\"device_tree\":{\"_disk2\":{\"id\":\"_disk2\",\"parent\":" parent ",\"children\":[]},"       \
    "\"_virtio-pci-_disk2\":{\"children\":[\"_disk2\"],\"pci_bdf\":" bdf "}}}"

static void knows_a_disks_place(void **state)
{
    static const struct {
        const char *body, *address;
    } cases[] = {
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:00:03.0\""), "pci:03"},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:00:1f.0\""), "pci:1f"},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0001:00:03.0\""), ""},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:01:03.0\""), ""},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:00:03.1\""), ""},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:00:zz.0\""), ""},
        {PLACED("\"_virtio-pci-_disk2\"", "\"0000:00:3.0\""), ""},
        {PLACED("\"_virtio-pci-_disk2\"", "null"), ""},
        {PLACED("\"other\"", "\"0000:00:03.0\""), ""},
        {PLACED("null", "\"0000:00:03.0\""), ""},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct drive_report report;

        assert_int_equal(read_info(cases[i].body, &report), HYPERVISOR_DONE);
        assert_int_equal(report.count, 1);
        assert_string_equal(report.entries[0].address, cases[i].address);
        drive_report_done(&report);
    }
}

static void guest_traits_are_read_from_vm_info(void **state)
{
    static const struct {
        const char *body;
        enum hypervisor_outcome outcome;
        bool is_confidential, has_share;
    } cases[] = {
        {"{\"config\":{\"fs\":[{\"tag\":\"kataShared\"}],\"platform\":{\"tdx\":false}}}",
         HYPERVISOR_DONE, false, true},
        {"{\"config\":{\"fs\":null,\"platform\":null}}", HYPERVISOR_DONE, false, false},
        {"{\"config\":{\"fs\":[]}}", HYPERVISOR_DONE, false, false},
        {"{\"config\":{\"platform\":{\"tdx\":true}}}", HYPERVISOR_DONE, true, false},
        {"{\"config\":{\"fs\":[{}],\"platform\":{\"sev_snp\":true}}}", HYPERVISOR_DONE, true, true},
        {"{\"state\":\"Running\"}", HYPERVISOR_UNREACHABLE, false, false},
        {"{\"config\":[]}", HYPERVISOR_UNREACHABLE, false, false},
        {"{", HYPERVISOR_UNREACHABLE, false, false},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(http_answer_done) struct http_answer answer;

        assert_int_equal(read_with(&answer, cloud_hypervisor_kind.read_guest, cases[i].body),
                         cases[i].outcome);
        assert_int_equal(answer.reply.guest.is_confidential, cases[i].is_confidential);
        assert_int_equal(answer.reply.guest.has_share, cases[i].has_share);
    }
}

#define TWICE                                                                                      \
    "{\"state\":\"Running\",\"config\":{\"disks\":[{\"id\":\"a\",\"path\":\"/x\"},"                \
    "{\"id\":\"a\",\"path\":\"/y\"}]}}"

static void refuses_what_contradicts_itself(void **state)
{
    static const char *const bodies[] = {
        "{\"config\":{\"disks\":[]}}",
        "{\"state\":\"Running\",\"config\":{\"disks\":{}}}",
        "{\"state\":\"Running\",\"config\":{\"disks\":[{\"path\":\"/x\"}]}}",
        "{\"state\":\"Running\",\"config\":{\"disks\":[{\"id\":\"\",\"path\":\"/x\"}]}}",
        "{\"state\":\"Running\",\"config\":{\"disks\":[{\"id\":\"a\",\"path\":\"\"}]}}",
        TWICE,
    };
    struct drive_report report;

    for (size_t i = 0; i < array_length(bodies); i++) {
        assert_int_equal(read_info(bodies[i], &report), HYPERVISOR_UNREACHABLE);
        drive_report_done(&report);
    }
}

static void refusal_text_is_extracted(void **state)
{
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"[\"outermost\",\"innermost\"]", "innermost"},
        {"[]", "[]"},
        {"[1]", "[1]"},
        {"{ \"error\": \"a\nb\" }", "{ \"error\": \"a\\nb\" }"},
        {"", "refused without a word"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(http_answer_done) struct http_answer answer;

        http_answer_init(&answer, &cloud_hypervisor_kind, cases[i].body, strlen(cases[i].body));
        assert_int_equal(vmm_http_refusal(&answer.http), HYPERVISOR_REFUSED);
        assert_string_equal(answer.reply.error.text, cases[i].text);
    }
}

/* A disk whose name is cut could be another one. */
static void refuses_ids_and_paths_that_do_not_fit(void **state)
{
    static const char disk[] =
        "{\"state\":\"Running\",\"config\":{\"disks\":[{\"id\":\"%0*d\",\"path\":\"/%0*d\"}]}}";
    char body[2 * DRIVE_PATH_BYTES];
    struct drive_report report;

    (void)snprintf(body, sizeof(body), disk, DRIVE_ID_BYTES - 1, 1, DRIVE_PATH_BYTES - 2, 1);
    assert_int_equal(read_info(body, &report), HYPERVISOR_DONE);
    drive_report_done(&report);
    (void)snprintf(body, sizeof(body), disk, DRIVE_ID_BYTES, 1, 1, 1);
    assert_int_equal(read_info(body, &report), HYPERVISOR_UNREACHABLE);
    drive_report_done(&report);
    (void)snprintf(body, sizeof(body), disk, 1, 1, DRIVE_PATH_BYTES - 1, 1);
    assert_int_equal(read_info(body, &report), HYPERVISOR_UNREACHABLE);
    drive_report_done(&report);
}

static void refuses_more_disks_than_are_kept(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(JSON_LIMITS_VMM_HTTP.bytes);
    struct drive_report report;

    buffer_append_text(&body, "{\"state\":\"Running\",\"config\":{\"disks\":[");
    for (unsigned i = 0; i <= DRIVE_REPORT_ENTRIES; i++)
        buffer_append_format(&body, "%s{\"id\":\"%u\",\"path\":\"/x\"}", i ? "," : "", i);
    assert_int_equal(buffer_append_text(&body, "]}}"), 0);
    assert_int_equal(read_info(buffer_text(&body), &report), HYPERVISOR_UNREACHABLE);
    drive_report_done(&report);
}

static void refuses_more_values_than_a_vm_has(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(JSON_LIMITS_VMM_HTTP.bytes);
    struct drive_report report;

    buffer_append_text(&body, "{\"state\":\"Running\"");
    for (unsigned i = 0; i < JSON_LIMITS_VMM_HTTP.values; i++)
        buffer_append_format(&body, ",\"x%u\":0", i);
    assert_int_equal(buffer_append_text(&body, "}"), 0);
    assert_int_equal(read_info(buffer_text(&body), &report), HYPERVISOR_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_versions),
        cmocka_unit_test(reads_a_ping),
        cmocka_unit_test(reads_disks),
        cmocka_unit_test(recorded_disk_is_examined_first),
        cmocka_unit_test(knows_a_disks_place),
        cmocka_unit_test(guest_traits_are_read_from_vm_info),
        cmocka_unit_test(refuses_what_contradicts_itself),
        cmocka_unit_test(refusal_text_is_extracted),
        cmocka_unit_test(refuses_ids_and_paths_that_do_not_fit),
        cmocka_unit_test(refuses_more_disks_than_are_kept),
        cmocka_unit_test(refuses_more_values_than_a_vm_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
