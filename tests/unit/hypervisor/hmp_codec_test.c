/* SPDX-License-Identifier: Apache-2.0 */
/* hmp_codec_test.c - replies of QEMU 7.2's monitor as recorded, and tables that lie. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "hypervisor/hmp_codec.h"
#include "lib/cleanup.h"

#define GREETING "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) "
/* What the monitor sends back while "foo" is typed into it. */
#define ECHO "f\x1b[K\x1b[Dfo\x1b[K\x1b[D\x1b[Dfoo\x1b[K\r\n"

static void takes_replies_off(void **state)
{
    static const struct {
        const char *bytes;
        const char *text;
    } cases[] = {
        {GREETING, ""},
        {ECHO "unknown command: 'foo'\r\n(qemu) ", "unknown command: 'foo'\n"},
        {ECHO "(qemu) ", ""},
        {ECHO "a\r\n\r\nb\rc\r\n(qemu) ", "a\n\nb\rc\n"},
        {ECHO "says (qemu) here\r\n(qemu) ", "says (qemu) here\n"},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer input = BUFFER_INIT(4096), text = BUFFER_INIT(4096);
        struct error error;
        size_t length = strlen(cases[i].bytes);

        for (size_t n = 0; n < length; n++) {
            assert_int_equal(hmp_decode(&input, &text, &error), HMP_INCOMPLETE);
            assert_int_equal(buffer_append(&input, cases[i].bytes + n, 1), 0);
        }
        assert_int_equal(hmp_decode(&input, &text, &error), HMP_DECODED);
        assert_string_equal(buffer_text(&text), cases[i].text);
        assert_int_equal(input.length, 0);
        buffer_done(&input);
        buffer_done(&text);
    }
}

static void refuses_binary_data(void **state)
{
    struct buffer input = BUFFER_INIT(4096), text = BUFFER_INIT(4096);
    struct error error;

    (void)state;
    assert_int_equal(buffer_append_text(&input, "\xff\r\n(qemu) "), 0);
    assert_int_equal(hmp_decode(&input, &text, &error), -EBADMSG);
    assert_int_equal(text.length, 0);
    buffer_done(&input);
}

static void refuses_an_endless_reply(void **state)
{
    struct buffer input = BUFFER_INIT(HMP_REPLY_BYTES + 1), text = BUFFER_INIT(16);
    char line[1024];
    struct error error;
    int r = HMP_INCOMPLETE;

    (void)state;
    memset(line, 'x', sizeof(line));
    while (r == HMP_INCOMPLETE) {
        assert_int_equal(buffer_append(&input, line, sizeof(line)), 0);
        r = hmp_decode(&input, &text, &error);
    }
    assert_int_equal(r, -EMSGSIZE);
    buffer_done(&input);
}

#define SIZE(bytes)                                                                                \
    "    Cache mode:       writeback\n\nImages:\nimage: whatever\nfile format: raw\n"              \
    "virtual size: 64 MiB (" bytes " bytes)\ndisk size: 0 B\n"
#define CHAIN                                                                                      \
    "json:{\"throttle-group\": \"tg0\", \"driver\": \"throttle\", \"file\": {\"driver\": "         \
    "\"host_device\", \"filename\": \"/dev/loop0\"}}"

static const char frontends[] =
    "old (#block655): /dev/loop0 (raw)\n    Attached to:      "
    "/machine/peripheral/olddev\n" SIZE(
        "67108864") "\ndrive-1: /dev/fdset/2 (raw)\n    "
                    "Attached to:      drive-1\n" SIZE(
                        "512") "\ndrive-2: /tmp/a (b) (raw, "
                               "read-only)\n" SIZE("1024") "\ndrive-5: " CHAIN " (throttle)\n" SIZE(
                                   "2048") "image: "
                                           "/dev/"
                                           "loop0\nfile "
                                           "format: "
                                           "raw\nvirtual"
                                           " "
                                           "size: 1 B "
                                           "(1 "
                                           "bytes)\n"
                                           "\n/machine/"
                                           "peripheral-"
                                           "anon/"
                                           "device[0]/"
                                           "virtio-"
                                           "backend: "
                                           "[not "
                                           "inserted]\n"
                                           "    "
                                           "Attached "
                                           "to:  "
                                           "    cd\n    "
                                           "Removable "
                                           "device: "
                                           "not locked, "
                                           "tray "
                                           "closed\n";

static void reads_tables(void **state)
{
    static const struct {
        const char *name, *driver, *file;
        bool read_only;
        uint64_t bytes;
    } expected[] = {
        {"#block655", "raw", "/dev/loop0", false, 67108864},
        {"drive-1", "raw", "/dev/fdset/2", false, 512},
        {"drive-2", "raw", "/tmp/a (b)", true, 1024},
        {"drive-5", "throttle", CHAIN, false, 2048},
    };
    struct qemu_nodes nodes = {0};
    struct error error;

    (void)state;
    assert_int_equal(hmp_read_blocks(frontends, true, &nodes, &error), 0);
    assert_int_equal(nodes.count, array_length(expected));
    for (size_t i = 0; i < nodes.count; i++) {
        assert_string_equal(nodes.entries[i].name, expected[i].name);
        assert_string_equal(nodes.entries[i].driver, expected[i].driver);
        assert_string_equal(nodes.entries[i].file, expected[i].file);
        assert_int_equal(nodes.entries[i].read_only, expected[i].read_only);
        assert_int_equal(nodes.entries[i].bytes, expected[i].bytes);
    }
    qemu_nodes_done(&nodes);
    assert_int_equal(hmp_read_blocks("", true, &nodes, &error), 0);
    assert_int_equal(nodes.count, 0);
}

static void refuses_tables_that_lie(void **state)
{
    static const char *const cases[] = {
        "what is this\n",
        "drive-1: /dev/loop0\n" SIZE("1"),
        "drive-1: /dev/loop0 (raw\n" SIZE("1"),
        ": /dev/loop0 (raw)\n" SIZE("1"),
        "a (: /dev/loop0 (raw)\n" SIZE("1"),
        "drive-1: /dev/loop0 ()\n" SIZE("1"),
        "drive-1: /dev/loop0 (raw)\n    Cache mode: writeback\n",
        "drive-1: /dev/loop0 (raw)\n" SIZE("-1"),
        "drive-1: /dev/loop0 (raw)\n" SIZE("99999999999999999999"),
        "drive-1: /dev/loop0 (raw)\n" SIZE("1x"),
        "0123456789012345678901234567890123456789012345678901234567890123: x (raw)\n" SIZE("1"),
        /* a file name with line ends in it forges a second drive-2 */
        "drive-1: /x\n\ndrive-2: /dev/loop0 (host_device)\n" SIZE("1") " (raw)\n" SIZE(
            "1") "\ndrive-2: /tmp/file (file)\n" SIZE("1"),
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct qemu_nodes nodes = {0};
        struct error error;

        assert_int_equal(hmp_read_blocks(cases[i], false, &nodes, &error), -EBADMSG);
        qemu_nodes_done(&nodes);
    }
}

static void bounds_the_number_of_blocks(void **state)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HMP_REPLY_BYTES);
    cleanup(qemu_nodes_done) struct qemu_nodes nodes = {0}, more = {0};
    struct error error;

    (void)state;
    for (unsigned i = 0; i < QEMU_REPORT_ENTRIES; i++)
        assert_int_equal(buffer_append_text(&text, "a: /x (raw)\n" SIZE("1") "\n"), 0);
    assert_int_equal(hmp_read_blocks(buffer_text(&text), true, &nodes, &error), 0);
    assert_int_equal(nodes.count, 1);
    assert_int_equal(buffer_append_text(&text, "a: /x (raw)\n" SIZE("1") "\n"), 0);
    assert_int_equal(hmp_read_blocks(buffer_text(&text), true, &more, &error), -EMSGSIZE);
}

static void writes_only_plain_names(void **state)
{
    static const char *const refused[] = {
        "",
        "#",
        "a b",
        "a\"",
        "a\nquit",
        "a;b",
        "a/b",
        "##a",
        "a#",
        "\xc3\xa4",
        "0123456789012345678901234567890123456789012345678901234567890123",
    };
    struct buffer output = BUFFER_INIT(4096);

    (void)state;
    for (size_t i = 0; i < array_length(refused); i++)
        assert_int_equal(hmp_encode_truncate(&output, refused[i], 1), -EINVAL);
    assert_int_equal(output.length, 0);
    assert_int_equal(hmp_encode_truncate(&output, "drive-0a", 18446744073709551615ULL), 0);
    assert_int_equal(hmp_encode_truncate(&output, "#block046", 512), 0);
    assert_string_equal(buffer_text(&output), "qemu-io drive-0a \"truncate 18446744073709551615\"\n"
                                              "qemu-io #block046 \"truncate 512\"\n");
    buffer_done(&output);
}

static void reads_the_version_of_a_greeting(void **state)
{
    static const struct {
        const char *bytes;
        const char *version;
    } cases[] = {
        {GREETING, "7.2.22"}, {"QEMU 11.0.1", "11.0.1"}, {"QEMU \x1b[K\r\n", "\\u001b[K"}, {"", ""},
        {"qemu 7", ""},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer input = BUFFER_INIT(4096);
        char version[32] = "old";

        assert_int_equal(buffer_append_text(&input, cases[i].bytes), 0);
        hmp_read_version(&input, version, sizeof(version));
        assert_string_equal(version, cases[i].version);
        buffer_done(&input);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_version_of_a_greeting),
        cmocka_unit_test(takes_replies_off),
        cmocka_unit_test(refuses_binary_data),
        cmocka_unit_test(refuses_an_endless_reply),
        cmocka_unit_test(reads_tables),
        cmocka_unit_test(refuses_tables_that_lie),
        cmocka_unit_test(bounds_the_number_of_blocks),
        cmocka_unit_test(writes_only_plain_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
