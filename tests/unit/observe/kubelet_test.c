/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet_test.c - pod directories that are there, and those that are not. */
#include "tests/unit/tree.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "observe/observe.h"

#define KUBELET "/var/lib/kubelet"
#define PODS    KUBELET "/pods"
#define PV      PODS "/uid-1/volumes/kubernetes.io~csi/pv-1"

static struct observed_kubelet look(void)
{
    struct observed_kubelet observed;

    assert_int_equal(observe_kubelet(root, KUBELET, "uid-1", "pv-1", &observed), 0);
    return observed;
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
    static char kubelet[PATH_MAX];
    struct observed_kubelet observed;

    memset(kubelet, '/', sizeof(kubelet) - 1);
    assert_true(observe_kubelet(root, kubelet, "uid-1", "pv-1", &observed) < 0);
}

static void without_another_pod_there_is_no_canary(void **state)
{
    assert_int_equal(look().device, 0); /* no kubelet at all: nothing is known to be absent */
    assert_true(look().pod);
    tree_make(PODS);
    assert_false(look().pod);
    assert_string_equal(look().canary, "");
    tree_write(PODS "/file", "");
    tree_make(PODS "/.hidden");
    assert_int_equal(symlink("/", tree_path(PODS "/link")), 0);
    assert_string_equal(look().canary, "");
    tree_make(PODS "/uid-1"); /* it is no witness for itself */
    assert_string_equal(look().canary, "");
}

static void an_obstructed_path_counts_as_present(void **state)
{
    tree_make(PODS "/uid-1/volumes/kubernetes.io~csi");
    tree_write(PV, "");
    assert_true(look().leaf && look().volume_data);
    tree_remove(PV);
    assert_int_equal(symlink("nowhere", tree_path(PV)), 0);
    assert_true(look().leaf && look().volume_data);
    tree_remove(PV);
    tree_make(PV);
    assert_int_equal(symlink("nowhere", tree_path(PV "/mount")), 0);
    assert_true(look().leaf && !look().volume_data);
}

/* ---- raw block claims ---- */

#define BLOCK KUBELET "/plugins/kubernetes.io/csi/volumeDevices/publish"
#define LINKS PODS "/uid-1/volumeDevices/kubernetes.io~csi"

struct seen {
    unsigned count;
    int answer;
    char path[PATH_MAX];
    dev_t device;
};

static int see(void *userdata, const char *path, dev_t device)
{
    struct seen *seen = userdata;

    seen->count++;
    (void)snprintf(seen->path, sizeof(seen->path), "%s", path);
    seen->device = device;
    return seen->answer;
}

static struct seen list(const char *pod_uid)
{
    static const char *const kubelets[] = {"/absent", KUBELET "/"};
    struct seen seen = {0};

    assert_int_equal(
        observe_each_block_claim(root, kubelets, array_length(kubelets), pod_uid, see, &seen), 0);
    return seen;
}

/* As the kubelet and the driver do. */
static void publish(const char *pv, mode_t kind)
{
    char path[256];

    (void)snprintf(path, sizeof(path), LINKS "/%s", pv);
    assert_int_equal(symlink("anywhere", tree_path(path)), 0);
    (void)snprintf(path, sizeof(path), BLOCK "/%s", pv);
    tree_make(path);
    (void)snprintf(path, sizeof(path), BLOCK "/%s/uid-1", pv);
    assert_int_equal(mknod(tree_path(path), kind | 0600, makedev(7, 3)), 0);
}

static void a_claim_has_both_the_kubelets_and_the_drivers_record(void **state)
{
    assert_int_equal(list("uid-1").count, 0);
    tree_make(LINKS);
    tree_make(BLOCK "/pv-0");
    assert_int_equal(mknod(tree_path(BLOCK "/pv-0/uid-1"), S_IFBLK | 0600, makedev(7, 3)), 0);
    assert_int_equal(list("uid-1").count, 0); /* the kubelet does not say that it is the pod's */
    publish("pv-1", S_IFBLK);
    assert_int_equal(list("uid-1").count, 1);
    assert_string_equal(list("uid-1").path, BLOCK "/pv-1/uid-1");
    assert_int_equal(list("uid-1").device, makedev(7, 3));
    assert_int_equal(list("uid-2").count, 0);
    tree_remove(BLOCK "/pv-1/uid-1");
    assert_int_equal(list("uid-1").count, 0);
}

static void what_is_no_claim_is_passed_over(void **state)
{
    static const char *const pods[] = {"", ".", "..", "../pods/uid-1", "uid-1/", "uid-1/x"};

    tree_make(LINKS);
    publish("pv-1", S_IFREG); /* a driver that has not bound the device yet */
    publish("pv-2", S_IFCHR);
    publish("pv-3", S_IFIFO);
    publish(".hidden", S_IFBLK);
    tree_make(BLOCK "/pv-4");
    assert_int_equal(symlink("/pv-4", tree_path(LINKS "/pv-4")), 0);
    assert_int_equal(symlink("../pv-4", tree_path(BLOCK "/pv-4/uid-1")), 0); /* a directory */
    assert_int_equal(list("uid-1").count, 0);
    publish("pv-5", S_IFBLK);
    for (size_t i = 0; i < array_length(pods); i++)
        assert_int_equal(list(pods[i]).count, 0);
}

static void a_directory_that_is_a_link_out_is_not_followed(void **state)
{
    tree_make(PODS "/uid-1/volumeDevices");
    assert_int_equal(symlink("../../../../../../..", tree_path(LINKS)), 0);
    assert_int_equal(list("uid-1").count, 0);
}

static void the_caller_may_stop(void **state)
{
    const char *kubelet = KUBELET;
    struct seen seen = {.answer = -ENOMEM};

    tree_make(LINKS);
    publish("pv-1", S_IFBLK);
    publish("pv-2", S_IFBLK);
    assert_int_equal(observe_each_block_claim(root, &kubelet, 1, "uid-1", see, &seen), -ENOMEM);
    assert_int_equal(seen.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_path_that_does_not_fit_is_refused, tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(without_another_pod_there_is_no_canary, tree_start,
                                        tree_stop),
        cmocka_unit_test_setup_teardown(an_obstructed_path_counts_as_present, tree_start,
                                        tree_stop),
        cmocka_unit_test_setup_teardown(a_claim_has_both_the_kubelets_and_the_drivers_record,
                                        tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(what_is_no_claim_is_passed_over, tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(a_directory_that_is_a_link_out_is_not_followed, tree_start,
                                        tree_stop),
        cmocka_unit_test_setup_teardown(the_caller_may_stop, tree_start, tree_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
