/* SPDX-License-Identifier: Apache-2.0 */
/* kata_test.c - which configurations are in use, and what becomes of their sandboxes. */
#include "tests/unit/doctor/node.h"

#include "doctor/checks.h"

#define QEMU(monitor, debug)                                                                       \
    "[hypervisor.qemu]\nextra_monitor_socket = \"" monitor "\"\nenable_debug = " debug "\n"
#define RUST "[runtime]\nname = \"virt_container\"\nhypervisor_name = \"qemu\"\n"

/* ---- what one configuration leads to ---- */

static struct program program; /* of the next one */
static const char *running;    /* sandboxes beside it; NULL: none */

static void judge(struct node *node, const char *text)
{
    cleanup(json_deletep) cJSON *rows = running ? cJSON_Parse(running) : NULL;
    struct kata_settings settings = {0};
    struct error error = {0};

    running = NULL;
    node_begin(node);
    node->written.findings.sandboxes = rows;
    if (kata_settings_read(&settings, "/k/c.toml", text, strlen(text), &error) != 0)
        fail_msg("%s", error.text);
    kata_judge(&settings, &program, "/k/c.toml", "kata", &node->written.findings);
    written_end(&node->written);
}

static void expect(struct node *node, const char *text, const char *level, const char *what)
{
    judge(node, text);
    written_expect(&node->written, "kata_configuration", what, level);
}

static void qemu_needs_a_monitor(void **state)
{
    expect(*state, QEMU("qmp", "true"), "ok", "QEMU gets a monitor for crustd (qmp)");
    expect(*state, QEMU("qmp-pretty", "true"), "ok", "(qmp-pretty)");
    expect(*state, QEMU("hmp", "true"), "error", "neither qmp nor qmp-pretty");
    expect(*state, QEMU("", "true"), "error", "extra_monitor_socket is empty (/k/c.toml)");
    expect(*state, "[hypervisor.qemu]\npath = \"/x\"\n", "error", "extra_monitor_socket is empty");
    expect(*state, QEMU("qmp", "false"), "error", "ignored without enable_debug");
    expect(*state, QEMU("qpm", "true"), "error", "neither qmp nor qmp-pretty");
}

/* Kata's Rust runtime passes no group on. A label matters where guests enforce SELinux. */
static void work_after_the_mount_is_noted(void **state)
{
    const struct findings *findings = &((struct node *)*state)->written.findings;

    judge(*state, QEMU("qmp", "true"));
    assert_true(!findings->ignores_group && findings->label_guests == 0);
    judge(*state, QEMU("qmp", "true") "disable_guest_selinux = true\n");
    assert_int_equal(findings->label_guests, 0);
    judge(*state, QEMU("qmp", "true") "disable_guest_selinux = false\n");
    assert_int_equal(findings->label_guests, 1);
    judge(*state, QEMU("qmp", "true") RUST);
    assert_true(findings->ignores_group);
}

/* What CRUST's capabilities follow from. */
static void a_working_configuration_is_noted(void **state)
{
    const struct findings *findings = &((struct node *)*state)->written.findings;

    judge(*state, QEMU("qmp", "true"));
    assert_true(findings->tells_hypervisor && findings->configurations == 1);
    judge(*state, QEMU("", "true"));
    assert_true(!findings->tells_hypervisor && findings->configurations == 1);
    judge(*state, "[hypervisor.qemu]\nenable_debug = true\nextra_monitor_socket = \"qmp\"\n"
                  "disable_block_device_use = true\n");
    assert_true(!findings->tells_hypervisor && findings->configurations == 0);
    ((struct node *)*state)->config.resize.firecracker = true;
    judge(*state, "[hypervisor.firecracker]\npath = \"/x\"\n");
    assert_true(findings->tells_hypervisor);
}

static void the_rust_runtime_has_no_such_monitor(void **state)
{
    expect(*state, QEMU("hmp", "true") RUST, "error", "neither qmp nor qmp-pretty");
    expect(*state, QEMU("qmp", "true") RUST, "error", "no pod starts");
    expect(*state, QEMU("qmp-pretty", "true") RUST, "error", "no pod starts");
}

static const char *remedy_of(const struct node *node)
{
    return json_string(written_find(&node->written, "kata_configuration", ""), "remedy");
}

static void the_remedy_is_crust_qemu(void **state)
{
    const struct node *node = *state;

    judge(*state, QEMU("", "false"));
    assert_non_null(strstr(remedy_of(node), "Put crustd's "));
    assert_non_null(strstr(remedy_of(node), "crust-qemu.toml"));
    assert_non_null(strstr(remedy_of(node), "/k/config.d"));
    judge(*state, QEMU("qmp", "false") RUST);
    assert_non_null(strstr(remedy_of(node), "Remove extra_monitor_socket from /k/c.toml, and put"));
    assert_non_null(strstr(remedy_of(node), "crust-qemu.toml"));
    judge(*state, QEMU("", "false") "confidential_guest = true\n");
    assert_non_null(strstr(remedy_of(node), "extra_monitor_socket = \"qmp\" in /k/c.toml"));
    assert_null(strstr(remedy_of(node), "crust-qemu.toml"));
    judge(*state, QEMU("", "false") "confidential_guest = true\n" RUST);
    assert_non_null(strstr(remedy_of(node), "Restart a pod once its volume has grown"));
}

#define CRUST "[hypervisor.qemu]\npath = \"/opt/crustd/bin/crust-qemu-system-x86_64\"\n"

static void crust_qemu_is_a_monitor(void **state)
{
    struct node *node = *state;

    program = (struct program){
        .state = PROGRAM_THERE, .is_crust = true, .qemu = PROGRAM_THERE, .has_directory = true};
    expect(node, CRUST, "ok", "QEMU gets a monitor for crustd (crust-qemu)");
    assert_true(node->written.findings.tells_hypervisor);
    expect(node, CRUST RUST, "ok", "Kata's Rust runtime): QEMU gets a monitor");
    expect(node, CRUST "enable_debug = true\nextra_monitor_socket = \"qmp\"\n" RUST, "error",
           "no pod starts");
    expect(node, CRUST "confidential_guest = true\n", "error", "extra_monitor_socket is empty");
    program.has_directory = false;
    judge(node, CRUST);
    assert_int_equal(written_count(&node->written, "kata_configuration"), 0);
    assert_false(node->written.findings.tells_hypervisor);
    program = (struct program){0};
}

static void the_configuration_of_crustd_counts(void **state)
{
    struct node *node = *state;

    node->config.resize.qemu_monitor = QEMU_MONITOR_OFF;
    expect(node, QEMU("", "false"), "note", "resize.qemu_monitor = off");
    node->config.resize.qemu_monitor = QEMU_MONITOR_MAIN;
    expect(node, QEMU("", "false"), "note", "resize.qemu_monitor = main");
    expect(node, "[hypervisor.firecracker]\na = 1\n", "error", "resize.firecracker");
    node->config.resize.firecracker = true;
    expect(node, "[hypervisor.firecracker]\na = 1\n", "ok", "Firecracker");
}

static void other_hypervisors(void **state)
{
    expect(*state, "[hypervisor.clh]\na = 1\n", "warning", "before version 52");
    expect(*state, "[hypervisor.cloud-hypervisor]\na = 1\n", "warning", "before version 52");
    expect(*state, "[hypervisor.dragonball]\na = 1\n", "error", "no way to tell");
    expect(*state, "[hypervisor.remote]\na = 1\n", "error", "no way to tell");
    expect(*state, "a = 1\n", "warning", "which hypervisor");
    expect(*state, QEMU("qmp", "true") "disable_block_device_use = true\n", "error",
           "no mounted volume reaches a guest as a device");
    expect(*state, QEMU("qmp", "true") "disable_block_device_use = true\n", "error",
           "claims of volumeMode Block do");
}

#define RUNS(boot, runtime, vmm, version, attached)                                                \
    "{\"boot_id\":\"" boot "\",\"runtime\":\"" runtime "\",\"hypervisor\":\"" vmm                  \
    "\",\"vmm_version\":\"" version "\",\"attached\":" attached "}"
#define NO_BLOCK "disable_block_device_use = true\n"
#define CLH      "[hypervisor.clh]\na = 1\n"

static void a_volume_in_a_vm_outweighs_the_key(void **state)
{
    struct node *node = *state;

    running = "[" RUNS("b", "kata-go", "qemu", "", "2") "]";
    expect(node, QEMU("qmp", "true") NO_BLOCK, "note", "VMs that run have volumes as devices");
    assert_int_equal(node->written.findings.configurations, 1);
    assert_true(node->written.findings.tells_hypervisor);
    expect(node, QEMU("hmp", "true") NO_BLOCK RUST, "error", "no container is created");
    running = "[" RUNS("b", "kata-go", "qemu", "",
                       "0") "," RUNS("older", "kata-go", "qemu", "",
                                     "1") "," RUNS("b", "kata-go", "cloud-hypervisor", "", "1") "]";
    expect(node, QEMU("qmp", "true") NO_BLOCK, "error", "no mounted volume");
    assert_int_equal(node->written.findings.configurations, 0);
}

#define CLAIMS(volumes, claims)                                                                    \
    "{\"boot_id\":\"b\",\"runtime\":\"kata-go\",\"hypervisor\":\"qemu\",\"volumes\":" volumes      \
    ",\"block_claims\":" claims "}"

/* The key is about mounted volumes, and this node has none. */
static void raw_block_claims_need_no_block_device_use(void **state)
{
    struct node *node = *state;

    running = "[" CLAIMS("1", "1") "," CLAIMS("0", "0") "]";
    expect(node, QEMU("qmp", "true") NO_BLOCK, "note", "no mounted volume reaches a guest");
    assert_int_equal(node->written.findings.configurations, 1);
    assert_true(node->written.findings.tells_hypervisor);
    running = "[" CLAIMS("1", "1") "," CLAIMS("2", "1") "]";
    expect(node, QEMU("qmp", "true") NO_BLOCK, "error", "no mounted volume reaches a guest");
    assert_int_equal(node->written.findings.configurations, 0);
}

static void the_version_that_runs_is_known(void **state)
{
    struct node *node = *state;

    running = "[" RUNS("b", "kata-go", "cloud-hypervisor", "54.0.0", "1") "]";
    expect(node, CLH, "ok", "uses Cloud Hypervisor's own API");
    assert_true(node->written.findings.tells_hypervisor);
    running = "[" RUNS("b", "kata-go", "cloud-hypervisor", "51.1.0",
                       "1") "," RUNS("b", "kata-go", "cloud-hypervisor", "54.0.0", "1") "]";
    expect(node, CLH, "warning", "an older Cloud Hypervisor runs here");
    running = "[" RUNS("b", "kata-go", "qemu", "54.0.0", "1") "]";
    expect(node, CLH, "warning", "shows once crustd has talked to it");
}

static void each_obstacle_is_reported(void **state)
{
    struct node *node = *state;

    judge(node, QEMU("", "true") "disable_block_device_use = true\n");
    written_expect(&node->written, "kata_configuration", "no mounted volume reaches a guest",
                   "error");
    written_expect(&node->written, "kata_configuration", "extra_monitor_socket is empty", "error");
}

static void confidential_guests_are_warned(void **state)
{
    struct node *node = *state;

    expect(node, QEMU("qmp", "true") "confidential_guest = true\n", "note", "attest");
    assert_int_equal(written_count(&node->written, "kata_configuration"), 2);
}

/* ---- which ones are in use ---- */

static void examine(struct node *node)
{
    kata_examine(&node->written.findings);
    written_end(&node->written);
}

static void the_engine_names_it(void **state)
{
    struct node *node = *state;

    node_write(node, "/etc/containerd/config.toml",
               "[plugins.cri.containerd.runtimes.runc]\nruntime_type='io.containerd.runc.v2'\n");
    node_write(node, "/opt/kata/containerd/config.d/kata-deploy.toml",
               "[plugins.cri.containerd.runtimes.kata-a.options]\nConfigPath = '/kata/a.toml'\n"
               "[plugins.cri.containerd.runtimes.kata-b.options]\nConfigPath = '/kata/a.toml'\n"
               "[plugins.cri.containerd.runtimes.kata-c.options]\nConfigPath = '/kata/c.toml'\n"
               "[plugins.cri.containerd.runtimes.kata-d.options]\nConfigPath = '/kata/no.toml'\n");
    node_write(node, "/kata/a.toml", QEMU("qmp", "true"));
    node_write(node, "/kata/c.toml", QEMU("", "true"));
    node_write(node, "/etc/kata-containers/configuration.toml", QEMU("", "false"));
    examine(node);
    written_expect(&node->written, "kata_configuration", "kata-a, kata-b (", "ok");
    written_expect(&node->written, "kata_configuration", "kata-c (", "error");
    written_expect(&node->written, "kata_unreadable", "/kata/no.toml", "warning");
    assert_int_equal(cJSON_GetArraySize(node->written.list), 3);
}

static void the_runtimes_look_for_it_themselves(void **state)
{
    struct node *node = *state;

    node_write(node, "/opt/kata/share/defaults/kata-containers/configuration.toml",
               QEMU("", "false"));
    node_write(node, "/usr/share/defaults/kata-containers/configuration.toml", QEMU("qmp", "true"));
    node_write(node, "/opt/kata/share/defaults/kata-containers/runtime-rs/configuration.toml",
               QEMU("hmp", "true") RUST);
    examine(node);
    written_expect(&node->written, "kata_configuration", "/usr/share/", "ok");
    written_expect(&node->written, "kata_configuration", "Rust", "error");
    assert_int_equal(written_count(&node->written, "kata_configuration"), 2);
}

static void a_runtime_without_a_path_takes_its_default(void **state)
{
    struct node *node = *state;

    node_write(node, "/etc/crio/crio.conf.d/99-kata",
               "[crio.runtime.runtimes.r]\nruntime_path = '/opt/kata/runtime-rs/bin/shim'\n"
               "[crio.runtime.runtimes.g]\nruntime_path = '/usr/bin/containerd-shim-kata-v2'\n");
    node_write(node, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    node_write(node, "/etc/kata-containers/runtime-rs/configuration.toml",
               QEMU("qmp", "true") RUST);
    examine(node);
    written_expect(&node->written, "kata_configuration", "r (", "error");
    written_expect(&node->written, "kata_configuration", "g (", "ok");
}

#define SANDBOXER(name, path)                                                                      \
    "[plugins.cri.containerd.runtimes." name "]\nsandboxer = 'shim'\n"                             \
    "runtime_path = '" path "'\n[plugins.cri.containerd.runtimes." name ".options]\n"              \
    "ConfigPath = '/kata/" name ".toml'\n"

/* It gets none of the class's options with a sandbox. */
static void the_rust_runtime_as_a_sandboxer_takes_its_default(void **state)
{
    struct node *node = *state;

    node_write(node, "/etc/containerd/config.toml",
               SANDBOXER("r", "/opt/kata/runtime-rs/bin/shim") SANDBOXER("g", "/usr/bin/kata"));
    node_write(node, "/kata/r.toml", QEMU("qmp", "true"));
    node_write(node, "/kata/g.toml", QEMU("qmp", "true"));
    examine(node);
    written_expect(&node->written, "kata_unreadable", "/kata/r.toml", "warning");
    written_expect(&node->written, "kata_configuration", "g (", "ok");
    node_begin(node);
    node_write(node, "/etc/kata-containers/runtime-rs/configuration.toml",
               QEMU("hmp", "true") RUST);
    examine(node);
    written_expect(&node->written, "kata_configuration", "r (", "error");
    written_expect(&node->written, "kata_configuration", "/etc/kata-containers/runtime-rs",
                   "error");
    written_expect(&node->written, "kata_configuration", "g (", "ok");
}

/* kata-deploy leaves a link where the file was, and config.d stands beside the file. */
static void drop_ins_stand_beside_the_file_itself(void **state)
{
    struct node *node = *state;

    node_write(node, "/k/runtimes/qemu/configuration.toml", QEMU("", "false"));
    node_write(node, "/k/runtimes/qemu/config.d/10-a", "hypervisor.qemu.enable_debug = true");
    node_write(node, "/k/runtimes/qemu/config.d/50-crustd.toml", QEMU("qmp", "true"));
    node_write(node, "/k/runtimes/qemu/config.d/.hidden", "nonsense");
    node_make(node, "/etc/kata-containers", 0755);
    node_link(node, "/k/runtimes/qemu/configuration.toml",
              "/etc/kata-containers/configuration.toml");
    examine(node);
    written_expect(&node->written, "kata_configuration", "/k/runtimes/qemu/configuration.toml",
                   "ok");
}

static void an_unreadable_configuration_is_not_judged(void **state)
{
    struct node *node = *state;

    node_write(node, "/etc/containerd/config.toml", "nonsense\n");
    node_write(node, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    node_write(node, "/etc/kata-containers/config.d/50", "[hypervisor.qemu]\n???\n");
    node_make(node, "/etc/kata-containers/runtime-rs/configuration.toml", 0755);
    examine(node);
    written_expect(&node->written, "engine_unreadable", "config.toml: line 1", "warning");
    written_expect(&node->written, "kata_unreadable", "config.d/50: line 2", "warning");
    written_expect(&node->written, "kata_unreadable", "not a regular file", "warning");
    assert_int_equal(written_count(&node->written, "kata_configuration"), 0);
}

static void there_is_a_bound_on_drop_ins(void **state)
{
    struct node *node = *state;
    char name[128];

    node_write(node, "/etc/kata-containers/configuration.toml", QEMU("qmp", "true"));
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "/etc/kata-containers/config.d/%d", i);
        node_write(node, name, "");
    }
    examine(node);
    written_expect(&node->written, "kata_unreadable", "config.d", "warning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(qemu_needs_a_monitor),
        NODE_TEST(work_after_the_mount_is_noted),
        NODE_TEST(a_working_configuration_is_noted),
        NODE_TEST(the_rust_runtime_has_no_such_monitor),
        NODE_TEST(the_remedy_is_crust_qemu),
        NODE_TEST(crust_qemu_is_a_monitor),
        NODE_TEST(the_configuration_of_crustd_counts),
        NODE_TEST(other_hypervisors),
        NODE_TEST(a_volume_in_a_vm_outweighs_the_key),
        NODE_TEST(the_version_that_runs_is_known),
        NODE_TEST(raw_block_claims_need_no_block_device_use),
        NODE_TEST(each_obstacle_is_reported),
        NODE_TEST(confidential_guests_are_warned),
        NODE_TEST(the_engine_names_it),
        NODE_TEST(the_runtimes_look_for_it_themselves),
        NODE_TEST(a_runtime_without_a_path_takes_its_default),
        NODE_TEST(the_rust_runtime_as_a_sandboxer_takes_its_default),
        NODE_TEST(drop_ins_stand_beside_the_file_itself),
        NODE_TEST(an_unreadable_configuration_is_not_judged),
        NODE_TEST(there_is_a_bound_on_drop_ins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
