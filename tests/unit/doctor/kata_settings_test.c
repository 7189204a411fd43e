/* SPDX-License-Identifier: Apache-2.0 */
/* kata_settings_test.c - configurations as Kata's two runtimes have them, and drop-ins over them.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"

static const char go_qemu[] = "# Kata's\n"
                              "[hypervisor.qemu]\n"
                              "path = \"/opt/kata/bin/qemu-system-x86_64\"\n"
                              "valid_hypervisor_paths = [\"/opt/kata/bin/qemu-system-x86_64\"]\n"
                              "disable_block_device_use = false\n"
                              "enable_debug = false\n"
                              "extra_monitor_socket = \"\"\n"
                              "[hypervisor.qemu.factory]\n"
                              "enable_debug = true\n"
                              "[agent.kata]\n"
                              "enable_debug = true\n"
                              "[runtime]\n"
                              "enable_debug = true\n";

static const char rust_qemu[] = "[hypervisor.qemu]\n"
                                "extra_monitor_socket = \"hmp\"\n"
                                "enable_debug = true\n"
                                "[hypervisor.clh]\n"
                                "[runtime]\n"
                                "name = \"virt_container\"\n"
                                "hypervisor_name = \"qemu\"\n";

static void take(struct kata_settings *settings, const char *file, const char *text)
{
    struct error error = {0};

    if (kata_settings_read(settings, file, text, strlen(text), &error) != 0)
        fail_msg("%s", error.text);
}

static void go_has_one_table(void **state)
{
    struct kata_settings settings = {0};
    const struct kata_table *table;

    take(&settings, "c.toml", go_qemu);
    table = kata_settings_table(&settings);
    assert_non_null(table);
    assert_false(settings.is_rust);
    assert_string_equal(table->name, "qemu");
    assert_false(table->enable_debug);
    assert_string_equal(table->monitor, "");
    assert_string_equal(table->monitor_file, "c.toml");
}

static void rust_names_its_table(void **state)
{
    struct kata_settings settings = {0};
    const struct kata_table *table;

    take(&settings, "c.toml", "[hypervisor.clh]\npath = \"/x\"\n");
    take(&settings, "c.toml", rust_qemu);
    table = kata_settings_table(&settings);
    assert_non_null(table);
    assert_true(settings.is_rust);
    assert_string_equal(table->name, "qemu");
    assert_true(table->enable_debug);
    assert_string_equal(table->monitor, "hmp");
}

static void later_settings_win(void **state)
{
    struct kata_settings settings = {0};
    const struct kata_table *table;

    take(&settings, "c.toml", go_qemu);
    take(&settings, "50.toml",
         "hypervisor.qemu.enable_debug = true\n"
         "hypervisor.qemu.extra_monitor_socket = 'qmp'\n");
    take(&settings, "60.toml", "hypervisor = { qemu = { enable_debug = false } }\n");
    table = kata_settings_table(&settings);
    assert_false(table->enable_debug);
    assert_string_equal(table->debug_file, "60.toml");
    assert_string_equal(table->monitor, "qmp");
    assert_string_equal(table->monitor_file, "50.toml");
}

static void an_older_name_is_known(void **state)
{
    struct kata_settings settings = {0};

    take(&settings, "c.toml",
         "[hypervisor.qemu]\ndbg_monitor_socket = \"hmp\"\nconfidential_guest = true\n"
         "disable_block_device_use = true\n");
    assert_string_equal(settings.table[0].monitor, "hmp");
    assert_true(settings.table[0].confidential);
    assert_true(settings.table[0].no_block_devices);
}

static void a_table_that_is_not_named_is_not_guessed(void **state)
{
    struct kata_settings settings = {0};

    assert_null(kata_settings_table(&settings));
    take(&settings, "c.toml", "[hypervisor.qemu]\na = 1\n[hypervisor.clh]\na = 1\n");
    assert_null(kata_settings_table(&settings));
    take(&settings, "d.toml", "[runtime]\nhypervisor_name = \"dragonball\"\n");
    assert_null(kata_settings_table(&settings));
}

static void paths_are_the_last_ones(void **state)
{
    struct kata_settings settings = {0};
    const struct kata_table *table;

    take(&settings, "c.toml", go_qemu);
    table = kata_settings_table(&settings);
    assert_string_equal(table->path, "/opt/kata/bin/qemu-system-x86_64");
    assert_string_equal(table->path_file, "c.toml");
    assert_int_equal(table->valid_paths, 1);
    take(&settings, "config.d/50",
         "[hypervisor.qemu]\npath = '/a'\nvalid_hypervisor_paths = ['/b', \"/c\"]\n");
    assert_string_equal(table->path, "/a");
    assert_string_equal(table->path_file, "config.d/50");
    assert_int_equal(table->valid_paths, 2);
    assert_string_equal(table->valid_path[1], "/c");
    take(&settings, "config.d/60", "[hypervisor.qemu]\nvalid_hypervisor_paths = []\n");
    assert_int_equal(table->valid_paths, 0);
}

static void expect_fault(const char *text, const char *fault)
{
    struct kata_settings settings = {0};
    struct error error = {0};

    assert_int_equal(kata_settings_read(&settings, "c.toml", text, strlen(text), &error), -EBADMSG);
    assert_string_equal(error.text, fault);
}

static void settings_that_kata_would_refuse_are_reported(void **state)
{
    cleanup(buffer_done) struct buffer many = BUFFER_INIT(0);

    expect_fault("[hypervisor.qemu]\nenable_debug = \"true\"\n",
                 "c.toml: line 2: enable_debug is neither true nor false");
    expect_fault("[hypervisor.qemu]\nextra_monitor_socket = true\n",
                 "c.toml: line 2: extra_monitor_socket is no string");
    expect_fault("[hypervisor.qemu]\npath = 1\n", "c.toml: line 2: path is no string");
    expect_fault("[hypervisor.qemu]\nvalid_hypervisor_paths = 'a'\n",
                 "c.toml: line 2: valid_hypervisor_paths is no array");
    expect_fault("[runtime]\nhypervisor_name = \"0123456789012345678901234567890123\"\n",
                 "c.toml: line 2: hypervisor_name is too long");
    expect_fault("[hypervisor.qemu]\nenable_debug = true\nnonsense\n",
                 "c.toml: line 3: neither a [table], nor key = value, nor a comment");
    for (int i = 0; i <= KATA_TABLES; i++)
        assert_int_equal(buffer_append_format(&many, "[hypervisor.h%d]\nx = 1\n", i), 0);
    expect_fault(buffer_text(&many), "c.toml: line 18: x stands in a hypervisor's table too many");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(go_has_one_table),
        cmocka_unit_test(rust_names_its_table),
        cmocka_unit_test(later_settings_win),
        cmocka_unit_test(an_older_name_is_known),
        cmocka_unit_test(a_table_that_is_not_named_is_not_guessed),
        cmocka_unit_test(paths_are_the_last_ones),
        cmocka_unit_test(settings_that_kata_would_refuse_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
