/* SPDX-License-Identifier: Apache-2.0 */
/* reference_test.c - docs/reference/files.md: the examples read as they stand there. */
#include "tests/unit/reference.h"

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/encode.h"
#include "model/volume.h"
#include "observe/observe.h"

#define PAGE "docs/reference/files.md"

static const char volume_path[] = "/data/pvc-orders";

static void names_decode(void **state)
{
    struct reference page;
    char path[ENTRY_PATH_BYTES] = "", hex[SHA256_HEX_BYTES];
    struct error error;

    sha256_hex(volume_path, strlen(volume_path), hex);
    reference_open(&page, PAGE, "names");
    reference_expect(&page, layout_name(LAYOUT_KATA));
    assert_int_equal(entry_name_decode(page.cell[2], path, &error), ENTRY_NAME_PATH);
    assert_string_equal(path, volume_path);
    reference_expect(&page, layout_name(LAYOUT_CRUST));
    assert_int_equal(entry_name_decode(page.cell[2], path, &error), ENTRY_NAME_SHA256);
    reference_expect_cell(&page, 2, hex);
    reference_expect_end(&page);
}

/* What has a meaning of its own is no sandbox's id; the last row is that of all other names. */
static void files_are_not_taken_for_sandboxes(void **state)
{
    struct reference page;
    unsigned files = 0;

    assert_true(observe_is_sandbox_id("710366aba2f3"));
    reference_open(&page, PAGE, "files");
    while (reference_next(&page) && strcmp(page.cell[0], "SANDBOX-ID") != 0) {
        assert_false(observe_is_sandbox_id(page.cell[0]));
        files++;
    }
    assert_int_equal(files, 3);
    reference_expect_end(&page);
}

/* The fenced block after the comment. */
static void read_example(struct buffer *ret_text)
{
    struct reference page;

    reference_open(&page, PAGE, "example");
    while (fgets(page.line, sizeof(page.line), page.file) && strcmp(page.line, "```json\n") != 0)
        ;
    while (fgets(page.line, sizeof(page.line), page.file) && strcmp(page.line, "```\n") != 0)
        assert_int_equal(buffer_append_text(ret_text, page.line), 0);
    reference_close(&page);
}

static void the_example_reads(void **state)
{
    struct mount_info info;
    struct error error;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(4096);

    read_example(&text);
    assert_int_equal(mount_info_parse(text.data, text.length, &info, &error), FILE_READ);
    assert_string_equal(info.volume_type, "directvol");
    assert_string_equal(info.device, "/dev/vg0/pvc-orders");
    assert_string_equal(info.fs_type, "ext4");
    assert_string_equal(info.options, "[\"rw\",\"noatime\"]");
    assert_int_equal(info.policy, POLICY_OBSERVE);
    mount_info_done(&info);
}

static void policies_are_as_the_page_has_them(void **state)
{
    static const char *const policies[] = {"grow", "observe", "never"};
    struct reference page;

    reference_open(&page, PAGE, "policies");
    for (unsigned i = POLICY_GROW; i <= POLICY_NEVER; i++) {
        assert_int_equal(policy_from_name(policies[i]), i);
        reference_expect(&page, policies[i]);
        reference_expect_words(&page, 1);
    }
    reference_expect_end(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_decode),
        cmocka_unit_test(files_are_not_taken_for_sandboxes),
        cmocka_unit_test(the_example_reads),
        cmocka_unit_test(policies_are_as_the_page_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
