/* SPDX-License-Identifier: Apache-2.0 */
/* engine_test.c - configurations of containerd and CRI-O, as kata-deploy writes them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"

static void take(struct engine_runtimes *runtimes, const char *text)
{
    struct error error = {0};

    if (engine_runtimes_read(runtimes, "config.toml", text, strlen(text), &error) != 0)
        fail_msg("%s", error.text);
}

static void containerd_of_both_versions(void **state)
{
    static const char two[] =
        "version = 2\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
        "runtime_type = \"io.containerd.runc.v2\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-qemu]\n"
        "runtime_type = \"io.containerd.kata-qemu.v2\"\n"
        "runtime_path = \"/opt/kata/bin/containerd-shim-kata-v2\"\n"
        "pod_annotations = [\"io.katacontainers.*\"]\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-qemu.options]\n"
        "ConfigPath = \"/opt/kata/c.toml\"\n";
    static const char three[] =
        "version = 3\n"
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.x]\n"
        "runtime_type = 'io.containerd.kata.v2'\n"
        "runtime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'\n"
        "options = { ConfigPath = '/y', BinaryName = 'kata' }\n";
    struct engine_runtimes runtimes = {0};

    take(&runtimes, two);
    take(&runtimes, three);
    assert_int_equal(runtimes.count, 3);
    assert_false(runtimes.runtime[0].is_kata);
    assert_string_equal(runtimes.runtime[1].name, "kata-qemu");
    assert_true(runtimes.runtime[1].is_kata);
    assert_false(runtimes.runtime[1].is_rust);
    assert_string_equal(runtimes.runtime[1].config_path, "/opt/kata/c.toml");
    assert_true(runtimes.runtime[2].is_kata);
    assert_true(runtimes.runtime[2].is_rust);
    assert_string_equal(runtimes.runtime[2].config_path, "/y");
}

static void a_sandboxer_is_known(void **state)
{
    struct engine_runtimes runtimes = {0};

    take(&runtimes, "[plugins.cri.containerd.runtimes.a]\nsandboxer = 'shim'\n"
                    "[plugins.cri.containerd.runtimes.b]\nsandboxer = 'podsandbox'\n");
    assert_true(runtimes.runtime[0].is_sandboxer);
    assert_false(runtimes.runtime[1].is_sandboxer);
    take(&runtimes, "[plugins.cri.containerd.runtimes.a]\nsandboxer = ''\n");
    assert_false(runtimes.runtime[0].is_sandboxer);
}

static void cri_o(void **state)
{
    struct engine_runtimes runtimes = {0};

    take(&runtimes, "[crio.runtime.runtimes.kata-clh]\n"
                    "\truntime_path = \"/opt/kata/bin/containerd-shim-kata-v2\"\n"
                    "\truntime_type = \"vm\"\n"
                    "\truntime_root = \"/run/vc\"\n"
                    "\truntime_config_path = \"/opt/kata/clh.toml\"\n");
    assert_int_equal(runtimes.count, 1);
    assert_true(runtimes.runtime[0].is_kata);
    assert_string_equal(runtimes.runtime[0].config_path, "/opt/kata/clh.toml");
}

static void a_later_file_wins(void **state)
{
    struct engine_runtimes runtimes = {0};

    take(&runtimes,
         "[plugins.cri.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n");
    assert_string_equal(runtimes.runtime[0].config_path, "");
    take(&runtimes, "[plugins.cri.containerd.runtimes.kata.options]\nConfigPath = '/a'\n");
    take(&runtimes, "[plugins.cri.containerd.runtimes.kata.options]\nConfigPath = '/b'\n");
    assert_int_equal(runtimes.count, 1);
    assert_string_equal(runtimes.runtime[0].config_path, "/b");
    assert_true(runtimes.runtime[0].is_kata);
}

static void expect_fault(const char *text, const char *fault)
{
    struct engine_runtimes runtimes = {0};
    struct error error = {0};

    assert_int_equal(engine_runtimes_read(&runtimes, "f", text, strlen(text), &error), -EBADMSG);
    assert_string_equal(error.text, fault);
}

static void unusable_settings_are_reported(void **state)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

    expect_fault("runtimes.x.options.ConfigPath = 1\n",
                 "f: line 1: the path of a configuration is no string");
    expect_fault("[runtimes.x]\n?\n",
                 "f: line 2: neither a [table], nor key = value, nor a comment");
    assert_int_equal(buffer_append_format(&text, "runtimes.x.runtime_config_path = '/%0*d'\n",
                                          ENGINE_PATH_BYTES, 0),
                     0);
    expect_fault(buffer_text(&text), "f: line 1: the path of a configuration is too long");
    buffer_clear(&text);
    for (int i = 0; i <= ENGINE_RUNTIMES; i++)
        assert_int_equal(buffer_append_format(&text, "runtimes.r%d.runtime_type = 'vm'\n", i), 0);
    expect_fault(buffer_text(&text), "f: line 65: more runtimes, or longer names, than are read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containerd_of_both_versions),
        cmocka_unit_test(a_sandboxer_is_known),
        cmocka_unit_test(cri_o),
        cmocka_unit_test(a_later_file_wins),
        cmocka_unit_test(unusable_settings_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
