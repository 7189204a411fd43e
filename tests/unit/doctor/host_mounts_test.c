/* SPDX-License-Identifier: Apache-2.0 */
/* host_mounts_test.c - which mounts of the node are volumes of Kata's pods, and whose. */
#include "tests/unit/doctor/node.h"

#include "doctor/checks.h"
#include "lib/encode.h"

#define KUBELET            "/var/lib/kubelet"
#define KATA               "11111111-aaaa-bbbb-cccc-000000000001"
#define RUNC               "22222222-aaaa-bbbb-cccc-000000000002"
#define PUBLISHED(uid, pv) KUBELET "/pods/" uid "/volumes/kubernetes.io~csi/" pv

static const char sandboxes[] = "[{\"sandbox_id\":\"5a\",\"boot_id\":\"b\",\"pod_path\":\"" KUBELET
                                "/pods/" KATA "/etc-hosts\"},"
                                "{\"sandbox_id\":\"5b\",\"boot_id\":\"a\",\"pod_path\":\"" KUBELET
                                "/pods/" RUNC "/etc-hosts\"},"
                                "{\"sandbox_id\":\"5c\",\"boot_id\":\"b\",\"pod_path\":null}]";

static void put_record(const struct node *node, const char *volume, const char *driver)
{
    char file[300], text[256];

    (void)snprintf(file, sizeof(file), "%s/vol_data.json", volume);
    (void)snprintf(text, sizeof(text), "{\"driverName\":\"%s\",\"volumeHandle\":\"h\"}", driver);
    node_write(node, file, text);
}

/* A line of the mount table for something at a path of the node. */
static void put_mount(const struct node *node, char *table, const char *device, const char *path,
                      const char *type_and_source)
{
    (void)snprintf(table + strlen(table), 4096 - strlen(table),
                   "36 35 %s / %s%s rw,noatime shared:1 - %s rw\n", device, node->name, path,
                   type_and_source);
}

static void examine(struct node *node, const char *table, const char *rows)
{
    cleanup(json_deletep) cJSON *list = NULL;
    cleanup(fd_closep) int fd = -1;
    char file[512];

    node_write(node, "/mountinfo", table);
    (void)snprintf(file, sizeof(file), "%s/mountinfo", node->name);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(
        json_parse(rows, strlen(rows), (struct json_limits){1 << 16, 4, 0}, &list, NULL), 0);
    node_begin(node);
    node->written.findings.sandboxes = list;
    host_mounts_examine(fd, &node->written.findings);
    written_end(&node->written);
}

static void each_driver_has_a_note(void **state)
{
    static const char *const volumes[] = {PUBLISHED(KATA, "pv-1"), PUBLISHED(KATA, "pv-2"),
                                          PUBLISHED(KATA, "pv-3")};
    struct node *node = *state;
    char table[4096] = "a line that is none\n";

    for (unsigned i = 0; i < 3; i++) {
        char mount[300];

        put_record(node, volumes[i], i < 2 ? "ebs.csi.aws.com" : "topolvm.io");
        (void)snprintf(mount, sizeof(mount), "%s/mount", volumes[i]);
        put_mount(node, table, i ? "259:7" : "8:16", mount, "ext4 /dev/nvme1n1");
    }
    examine(node, table, sandboxes);
    assert_int_equal(written_count(&node->written, "host_mounted"), 2);
    written_expect(
        &node->written, "host_mounted",
        "2 volumes of Kata pods are mounted on this node by driver ebs.csi.aws.com: there is "
        "nothing for crustd to resize; their file system is the host's",
        "note");
    written_expect(&node->written, "host_mounted",
                   "1 volume of Kata pods is mounted on this node by driver topolvm.io: there is "
                   "nothing for crustd to resize; its file system is the host's",
                   "note");
    examine(node, table, "[]");
    assert_int_equal(written_count(&node->written, "host_mounted"), 0);
}

/* In a pod the node's root is /host, say, and the mount table is that of process 1. */
static void the_table_may_be_seen_from_another_root(void **state)
{
    struct node *node = *state;
    char table[4096] = "";

    put_record(node, PUBLISHED(KATA, "pv-1"), "d");
    (void)snprintf(table, sizeof(table), "36 35 8:16 / %s/mount rw - ext4 /dev/sdb rw\n",
                   PUBLISHED(KATA, "pv-1"));
    examine(node, table, sandboxes);
    assert_int_equal(written_count(&node->written, "host_mounted"), 1);
}

/* The kubelet's directory may be a link: the mount table has where it leads. */
static void the_kubelet_may_be_elsewhere(void **state)
{
    struct node *node = *state;
    char table[4096] = "";

    node_make(node, "/data/kubelet", 0755);
    node_make(node, "/var/lib", 0755);
    node_link(node, "/data/kubelet", KUBELET);
    put_record(node, "/data/kubelet/pods/" KATA "/volumes/kubernetes.io~csi/pv-1", "d");
    put_mount(node, table, "8:16",
              "/data/kubelet/pods/" KATA "/volumes/kubernetes.io~csi/pv-1/mount", "xfs /dev/sdb");
    examine(node, table, sandboxes);
    assert_int_equal(written_count(&node->written, "host_mounted"), 1);
}

static void other_mounts_are_passed_over(void **state)
{
    static const char *const cases[][3] = {
        {"8:16", PUBLISHED(RUNC, "pv-1") "/mount", "ext4 /dev/sdb"}, /* no pod of Kata's now */
        {"0:40", PUBLISHED(KATA, "pv-1") "/mount", "nfs4 filer:/a"}, /* no block device */
        {"0:41", PUBLISHED(KATA, "pv-1") "/mount", "tmpfs tmpfs"},   /* no block device */
        {"8:16", PUBLISHED(KATA, "pv-2") "/mount",
         "ext4 /dev/sdb"}, /* no record names the driver */
        {"8:16", PUBLISHED(KATA, "pv-3") "/mount", "ext4 /dev/sdb"}, /* has metadata for crustd */
        {"8:16", PUBLISHED(KATA, "pv-1") "/mount/a", "ext4 /dev/sdb"},
        {"8:16", PUBLISHED(KATA, "pv-1"), "ext4 /dev/sdb"},
        {"8:16", KUBELET "/pods/" KATA "/volumes/kubernetes.io~empty-dir/pv-1/mount",
         "ext4 /dev/sdb"},
        {"8:16", "/elsewhere/pods/" KATA "/volumes/kubernetes.io~csi/pv-1/mount", "ext4 /dev/sdb"},
    };
    static const char of_crustd[] = PUBLISHED(KATA, "pv-3") "/mount";
    struct node *node = *state;
    char name[BASE64URL_NAME_CHARS + 1], metadata[400], table[4096];

    put_record(node, PUBLISHED(RUNC, "pv-1"), "d");
    put_record(node, PUBLISHED(KATA, "pv-1"), "d");
    put_record(node, PUBLISHED(KATA, "pv-3"), "d");
    node_write(node, PUBLISHED(KATA, "pv-2") "/vol_data.json", "{\"driverName\":");
    base64url_encode(of_crustd, strlen(of_crustd), name);
    (void)snprintf(metadata, sizeof(metadata), "%.100s/%s", node->config.paths.kata_volumes, name);
    node_make(node, metadata, 0755);
    for (size_t i = 0; i < array_length(cases); i++) {
        table[0] = '\0';
        put_mount(node, table, cases[i][0], cases[i][1], cases[i][2]);
        examine(node, table, sandboxes);
        if (written_count(&node->written, "host_mounted"))
            fail_msg("%s", table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(each_driver_has_a_note),
        NODE_TEST(the_table_may_be_seen_from_another_root),
        NODE_TEST(the_kubelet_may_be_elsewhere),
        NODE_TEST(other_mounts_are_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
