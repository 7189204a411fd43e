/* kata_test.c - which configurations are in use, and what becomes of their sandboxes. */
#include "tests/unit/doctor/scratch.h"

#include "doctor/kata.h"

#define QEMU(monitor, debug)                                                                       \
    "[hypervisor.qemu]\nextra_monitor_socket = \"" monitor "\"\nenable_debug = " debug "\n"
#define RUST "[runtime]\nname = \"virt_container\"\nhypervisor_name = \"qemu\"\n"

/* ---- what one configuration leads to ---- */

static void judge(struct scratch *scratch, const char *text)
{
    struct kata_settings settings = {0};
    struct error error = {0};

    written_done(&scratch->written);
    written_begin(&scratch->written);
    if (kata_settings_read(&settings, "/k/c.toml", text, strlen(text), &error) != 0)
        fail_msg("%s", error.text);
    kata_judge(&settings, "/k/c.toml", "kata", &scratch->config, &scratch->written.findings);
    written_end(&scratch->written);
}

static void expect(struct scratch *scratch, const char *text, const char *level, const char *what)
{
    judge(scratch, text);
    written_expect(&scratch->written, "kata_configuration", what, level);
}

static void qemu_needs_a_monitor(void **state)
{
    expect(*state, QEMU("qmp", "true"), "ok", "QEMU gets a monitor for crustd (qmp)");
    expect(*state, QEMU("hmp", "true"), "ok", "(hmp)");
    expect(*state, QEMU("", "true"), "error", "extra_monitor_socket is empty (/k/c.toml)");
    expect(*state, "[hypervisor.qemu]\npath = \"/x\"\n", "error", "extra_monitor_socket is empty");
    expect(*state, QEMU("qmp", "false"), "error", "ignored without enable_debug");
    expect(*state, QEMU("qpm", "true"), "error", "none of hmp, qmp");
}

static void the_rust_runtime_needs_hmp(void **state)
{
    expect(*state, QEMU("hmp", "true") RUST, "ok", "Rust runtime");
    expect(*state, QEMU("qmp", "true") RUST, "error", "no pod starts");
    expect(*state, QEMU("qmp-pretty", "true") RUST, "error", "no pod starts");
}

static const char *remedy_of(const struct scratch *scratch)
{
    return json_string(written_find(&scratch->written, "kata_configuration", ""), "remedy");
}

static void the_remedy_is_the_runtimes_own(void **state)
{
    const struct scratch *scratch = *state;

    judge(*state, QEMU("", "false"));
    assert_non_null(strstr(remedy_of(scratch), "go-qemu.toml"));
    assert_non_null(strstr(remedy_of(scratch), "/k/config.d"));
    assert_non_null(strstr(remedy_of(scratch), "extra_monitor_socket = \"qmp\""));
    judge(*state, QEMU("", "false") RUST);
    assert_non_null(strstr(remedy_of(scratch), "rust-qemu.toml"));
    assert_non_null(strstr(remedy_of(scratch), "extra_monitor_socket = \"hmp\""));
}

static void the_configuration_of_crustd_counts(void **state)
{
    struct scratch *scratch = *state;

    scratch->config.resize.qemu_monitor = QEMU_MONITOR_OFF;
    expect(scratch, QEMU("", "false"), "note", "resize.qemu_monitor = off");
    scratch->config.resize.qemu_monitor = QEMU_MONITOR_MAIN;
    expect(scratch, QEMU("", "false"), "note", "resize.qemu_monitor = main");
    expect(scratch, "[hypervisor.firecracker]\na = 1\n", "error", "resize.firecracker");
    scratch->config.resize.firecracker = true;
    expect(scratch, "[hypervisor.firecracker]\na = 1\n", "ok", "Firecracker");
}

static void other_hypervisors(void **state)
{
    expect(*state, "[hypervisor.clh]\na = 1\n", "warning", "before version 52");
    expect(*state, "[hypervisor.dragonball]\na = 1\n", "error", "no way to tell");
    expect(*state, "[hypervisor.remote]\na = 1\n", "error", "no way to tell");
    expect(*state, "a = 1\n", "warning", "which hypervisor");
    expect(*state, QEMU("qmp", "true") "disable_block_device_use = true\n", "error",
           "no volume reaches a guest as a device");
}

static void confidential_guests_are_warned(void **state)
{
    struct scratch *scratch = *state;

    expect(scratch, QEMU("qmp", "true") "confidential_guest = true\n", "note", "attest");
    assert_int_equal(written_count(&scratch->written, "kata_configuration"), 2);
}

/* ---- which ones are in use ---- */

static void examine(struct scratch *scratch)
{
    kata_examine(scratch->root, &scratch->config, &scratch->written.findings);
    written_end(&scratch->written);
}

static void without_kata(void **state)
{
    struct scratch *scratch = *state;

    examine(scratch);
    written_expect(&scratch->written, "kata_absent", "", "warning");
    assert_int_equal(cJSON_GetArraySize(scratch->written.list), 1);
}

static void the_engine_names_it(void **state)
{
    struct scratch *scratch = *state;

    scratch_write(scratch, "/etc/containerd/config.toml",
                  "[plugins.cri.containerd.runtimes.runc]\nruntime_type='io.containerd.runc.v2'\n");
    scratch_write(
        scratch, "/opt/kata/containerd/config.d/kata-deploy.toml",
        "[plugins.cri.containerd.runtimes.kata-a.options]\nConfigPath = '/kata/a.toml'\n"
        "[plugins.cri.containerd.runtimes.kata-b.options]\nConfigPath = '/kata/a.toml'\n"
        "[plugins.cri.containerd.runtimes.kata-c.options]\nConfigPath = '/kata/c.toml'\n"
        "[plugins.cri.containerd.runtimes.kata-d.options]\nConfigPath = '/kata/no.toml'\n");
    scratch_write(scratch, "/kata/a.toml", QEMU("qmp", "true"));
    scratch_write(scratch, "/kata/c.toml", QEMU("", "true"));
    scratch_write(scratch, "/etc/kata-containers/configuration.toml", QEMU("", "false"));
    examine(scratch);
    written_expect(&scratch->written, "kata_configuration", "kata-a, kata-b (", "ok");
    written_expect(&scratch->written, "kata_configuration", "kata-c (", "error");
    written_expect(&scratch->written, "kata_unreadable", "/kata/no.toml", "warning");
    assert_int_equal(cJSON_GetArraySize(scratch->written.list), 3);
}

static void the_runtimes_look_for_it_themselves(void **state)
{
    struct scratch *scratch = *state;

    scratch_write(scratch, "/opt/kata/share/defaults/kata-containers/configuration.toml",
                  QEMU("", "false"));
    scratch_write(scratch, "/usr/share/defaults/kata-containers/configuration.toml",
                  QEMU("qmp", "true"));
    scratch_write(scratch, "/opt/kata/share/defaults/kata-containers/runtime-rs/configuration.toml",
                  QEMU("hmp", "true") RUST);
    examine(scratch);
    written_expect(&scratch->written, "kata_configuration", "/usr/share/", "ok");
    written_expect(&scratch->written, "kata_configuration", "Rust", "ok");
    assert_int_equal(written_count(&scratch->written, "kata_configuration"), 2);
}

static void a_runtime_without_a_path_takes_its_default(void **state)
{
    struct scratch *scratch = *state;

    scratch_write(scratch, "/etc/crio/crio.conf.d/99-kata",
                  "[crio.runtime.runtimes.r]\nruntime_path = '/opt/kata/runtime-rs/bin/shim'\n"
                  "[crio.runtime.runtimes.g]\nruntime_path = '/usr/bin/containerd-shim-kata-v2'\n");
    scratch_write(scratch, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    scratch_write(scratch, "/etc/kata-containers/runtime-rs/configuration.toml",
                  QEMU("hmp", "true") RUST);
    examine(scratch);
    written_expect(&scratch->written, "kata_configuration", "r (", "ok");
    written_expect(&scratch->written, "kata_configuration", "g (", "ok");
}

/* kata-deploy leaves a link where the file was, and config.d stands beside the file. */
static void drop_ins_stand_beside_the_file_itself(void **state)
{
    struct scratch *scratch = *state;

    scratch_write(scratch, "/k/runtimes/qemu/configuration.toml", QEMU("", "false"));
    scratch_write(scratch, "/k/runtimes/qemu/config.d/10-a", "hypervisor.qemu.enable_debug = true");
    scratch_write(scratch, "/k/runtimes/qemu/config.d/50-crustd.toml", QEMU("qmp", "true"));
    scratch_write(scratch, "/k/runtimes/qemu/config.d/.hidden", "nonsense");
    scratch_make(scratch, "/etc/kata-containers", 0755);
    scratch_link(scratch, "/k/runtimes/qemu/configuration.toml",
                 "/etc/kata-containers/configuration.toml");
    examine(scratch);
    written_expect(&scratch->written, "kata_configuration", "/k/runtimes/qemu/configuration.toml",
                   "ok");
}

static void a_later_drop_in_is_named(void **state)
{
    struct scratch *scratch = *state;
    const char *remedy;

    scratch_write(scratch, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    scratch_write(scratch, "/etc/kata-containers/config.d/60-debug.toml",
                  "[hypervisor.qemu]\nenable_debug = false\n");
    examine(scratch);
    written_expect(&scratch->written, "kata_configuration", "config.d/60-debug.toml", "error");
    remedy = json_string(scratch->written.list->child, "remedy");
    assert_non_null(strstr(remedy, "sorts behind"));
}

static void what_cannot_be_read_is_not_judged(void **state)
{
    struct scratch *scratch = *state;

    scratch_write(scratch, "/etc/containerd/config.toml", "nonsense\n");
    scratch_write(scratch, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    scratch_write(scratch, "/etc/kata-containers/config.d/50", "[hypervisor.qemu]\n???\n");
    scratch_make(scratch, "/etc/kata-containers/runtime-rs/configuration.toml", 0755);
    examine(scratch);
    written_expect(&scratch->written, "engine_unreadable", "config.toml: line 1", "warning");
    written_expect(&scratch->written, "kata_unreadable", "config.d/50: line 2", "warning");
    written_expect(&scratch->written, "kata_unreadable", "not a regular file", "warning");
    assert_int_equal(written_count(&scratch->written, "kata_configuration"), 0);
}

static void there_is_a_bound_on_drop_ins(void **state)
{
    struct scratch *scratch = *state;
    char name[128];

    scratch_write(scratch, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "/etc/kata-containers/config.d/%d", i);
        scratch_write(scratch, name, "");
    }
    examine(scratch);
    written_expect(&scratch->written, "kata_unreadable", "config.d", "warning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(qemu_needs_a_monitor),
        SCRATCH_TEST(the_rust_runtime_needs_hmp),
        SCRATCH_TEST(the_remedy_is_the_runtimes_own),
        SCRATCH_TEST(the_configuration_of_crustd_counts),
        SCRATCH_TEST(other_hypervisors),
        SCRATCH_TEST(confidential_guests_are_warned),
        SCRATCH_TEST(without_kata),
        SCRATCH_TEST(the_engine_names_it),
        SCRATCH_TEST(the_runtimes_look_for_it_themselves),
        SCRATCH_TEST(a_runtime_without_a_path_takes_its_default),
        SCRATCH_TEST(drop_ins_stand_beside_the_file_itself),
        SCRATCH_TEST(a_later_drop_in_is_named),
        SCRATCH_TEST(what_cannot_be_read_is_not_judged),
        SCRATCH_TEST(there_is_a_bound_on_drop_ins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
