/* SPDX-License-Identifier: Apache-2.0 */
/* publish_walk_test.c - which publish paths the kubelets' directories can have. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/observe.h"
#include "tests/unit/scratch.h"

#define CSI "/volumes/kubernetes.io~csi"

static const char *const kubelets[] = {"/absent", "/one/", "/two"};
static char scratch[SCRATCH_BYTES];
static int root = -1;

static int start(void **state)
{
    static const char *const directories[] = {
        "/one/pods/u1" CSI "/pv-1",    "/one/pods/u1" CSI "/pv-2/mount",
        "/one/pods/u1" CSI "/.hidden", "/one/pods/u1/volumes/kubernetes.io~nfs/pv-3",
        "/one/pods/u2/volumes",        "/two/pods/u3" CSI "/pv-4",
    };

    if (scratch_directory_make(scratch) < 0 || path_open_root(scratch, &root) < 0)
        return -1;
    for (size_t i = 0; i < array_length(directories); i++)
        if (path_make_directories(root, directories[i], 0700) < 0)
            return -1;
    return 0;
}

static int stop(void **state)
{
    fd_close(root);
    return scratch_directory_remove(scratch);
}

struct seen {
    unsigned count;
    char all[1024];
};

static int see(void *userdata, const char *path)
{
    struct seen *seen = userdata;

    seen->count++;
    strcat(seen->all, path);
    strcat(seen->all, "\n");
    return 0;
}

static void walks_every_pod_of_every_kubelet(void **state)
{
    struct seen seen = {0};
    struct publish_walk *walk;
    unsigned pods = 0;
    int r;

    assert_int_equal(publish_walk_new(root, kubelets, array_length(kubelets), &walk), 0);
    while ((r = publish_walk_next(walk, see, &seen)) == 1)
        pods++;
    assert_int_equal(r, 0);
    assert_int_equal(pods, 3);
    assert_int_equal(seen.count, 3);
    assert_non_null(strstr(seen.all, "/one/pods/u1" CSI "/pv-1/mount\n"));
    assert_non_null(strstr(seen.all, "/one/pods/u1" CSI "/pv-2/mount\n"));
    assert_non_null(strstr(seen.all, "/two/pods/u3" CSI "/pv-4/mount\n"));
    walk = publish_walk_free(walk);
    assert_null(walk);
}

static void links_are_skipped_and_paths_too_long_for_base64_are_reported(void **state)
{
    char name[200], path[300];
    struct publish_walk *walk;
    struct seen seen = {0};

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(path, sizeof(path), "/three/pods/u1" CSI "/%s", name);
    assert_int_equal(path_make_directories(root, path, 0700), 0);
    assert_int_equal(path_make_directories(root, "/three/pods/u2/volumes", 0700), 0);
    assert_int_equal(symlinkat("/one/pods/u1" CSI, root, "three/pods/u2" CSI), 0);
    assert_int_equal(publish_walk_new(root, (const char *const[]){"/three"}, 1, &walk), 0);
    while (publish_walk_next(walk, see, &seen) == 1)
        ;
    assert_int_equal(seen.count, 1);
    assert_non_null(strstr(seen.all, name));
    (void)publish_walk_free(walk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(walks_every_pod_of_every_kubelet, start, stop),
        cmocka_unit_test_setup_teardown(
            links_are_skipped_and_paths_too_long_for_base64_are_reported, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
