/* SPDX-License-Identifier: Apache-2.0 */
/* status_page_test.c - what the page escapes, and that it is short however much there is. */
#include "tests/unit/api/fixture.h"

#include "api/html.h"
#include "api/status_page.h"
#include "tests/unit/volume_rows.h"

static void expect_html(void (*write)(struct buffer *html, const void *value), const void *value,
                        const char *expected)
{
    cleanup(buffer_done) struct buffer out = BUFFER_INIT(1024);

    write(&out, value);
    assert_int_equal(buffer_error(&out), 0);
    assert_string_equal(buffer_text(&out), expected);
}

static void write_text(struct buffer *html, const void *text)
{
    html_text(html, text);
}

static void write_span(struct buffer *html, const void *milliseconds)
{
    html_span(html, *(const int64_t *)milliseconds);
}

static void write_size(struct buffer *html, const void *bytes)
{
    html_size(html, *(const uint64_t *)bytes);
}

#define SPACE   "\xc2\xa0"
#define STRANGE "\xef\xbf\xbd"

static void all_text_is_escaped(void **state)
{
    static const char *const texts[][2] = {
        {"pv-1", "pv-1"},
        {"<b a='1' c=\"2\">&", "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;"},
        {"a\x01\x7f\x1b[0m\n", "a" STRANGE STRANGE STRANGE "[0m" STRANGE},
        {"\xff\xc3\xa9\xe2\x80\xae|", STRANGE "\xc3\xa9" STRANGE "|"},
        {"a\\b", "a\\b"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < array_length(texts); i++)
        expect_html(write_text, texts[i][0], texts[i][1]);
}

static void numbers_are_for_people(void **state)
{
    static const struct {
        int64_t milliseconds;
        const char *text;
    } spans[] = {{0, "0" SPACE "ms"},
                 {999, "999" SPACE "ms"},
                 {3310, "3.3" SPACE "s"},
                 {59999, "60" SPACE "s"},
                 {120000, "2" SPACE "min"},
                 {7200000, "2" SPACE "h"},
                 {3 * 86400000LL, "3" SPACE "d"}};
    static const uint64_t none, bytes = 3 << 19, most = UINT64_MAX;

    (void)state;
    for (size_t i = 0; i < array_length(spans); i++)
        expect_html(write_span, &spans[i].milliseconds, spans[i].text);
    expect_html(write_size, &none, "<span class=none>\xe2\x80\x93</span>");
    expect_html(write_size, &bytes, "<span title=\"1572864 bytes\">1.5" SPACE "MiB</span>");
    expect_html(write_size, &most,
                "<span title=\"18446744073709551615 bytes\">16" SPACE "EiB</span>");
}

static void expect_words(struct fixture *fixture, const char *words)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, "GET", "/");

    assert_int_equal(status_of(&reply), 200);
    if (!strstr(buffer_text(&reply), words))
        fail_msg("no \"%s\" in %s", words, buffer_text(&reply));
}

static void an_empty_node(void **state)
{
    struct fixture *fixture = *state;

    expect_words(fixture, "No volume is staged on this node.");
    expect_words(fixture, "No device has grown so far.");
    expect_words(fixture, "<b>ready</b>");
    expect_words(fixture, "\r\nContent-Security-Policy: " STATUS_PAGE_POLICY "\r\n");
    fixture->reconciler.health.degraded = true;
    (void)strcpy(fixture->reconciler.health.problem, "<disk>");
    expect_words(fixture, "<b>degraded</b> &lt;disk&gt;");
    fixture->reconciler.health.degraded = fixture->reconciler.health.synced = false;
    expect_words(fixture, "<b>starting</b>");
}

static void pod_and_claim_are_named(void **state)
{
    struct fixture *fixture = *state;

    add_volumes_with(
        fixture, 1,
        "{\"csi.storage.k8s.io/pvc/name\":\"data\",\"csi.storage.k8s.io/pvc/namespace\":\"shop\"}");
    expect_words(fixture, "<small>/dev/loop0, claim shop/data</small>");
    assert_int_equal(store_begin(fixture->reconciler.store), 0);
    bind_first_volume(fixture->reconciler.store);
    assert_int_equal(store_commit(fixture->reconciler.store), 0);
    expect_words(fixture, "<small>shop/db-0, claim shop/data</small>");
}

static void stalled_volumes_come_first_and_are_explained(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->reconciler.store;

    add_volumes(fixture, 3);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(row_open_resize(store, 3, 1 << 20, 2 << 20), 0);
    assert_int_equal(row_set_state(store, 3, STATE_BLOCKED, REASON_NO_DEVICE, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    expect_words(fixture, "<b>1</b> stalled");
    expect_words(fixture, "<b>0</b> to look at");
    expect_words(fixture, "<h2>Stalled</h2>");
    expect_words(fixture, "leads to nothing on this node");
    expect_words(fixture, "<code>crustctl explain 3</code>");
    expect_words(fixture, "<tbody>\n<tr><th scope=row title=\"/var/lib/kubelet/pods/"
                          "12345678-aaaa-bbbb-cccc-000000000002/");
    expect_words(fixture, "not done yet");
}

/* A resize that stands still in the guest is as stalled as one that the hypervisor refuses. */
static void the_page_counts_stalled_as_the_view_does(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->reconciler.store;

    add_volumes(fixture, 5);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(row_set_state(store, 1, STATE_BLOCK_GROWN, REASON_AGENT_UNSUPPORTED, NULL), 0);
    assert_int_equal(row_set_state(store, 2, STATE_BLOCK_GROWN, REASON_NONE, NULL), 0);
    assert_int_equal(row_set_state(store, 3, STATE_SHRUNK, REASON_NONE, NULL), 0);
    assert_int_equal(row_set_state(store, 4, STATE_BLOCKED, REASON_NO_DEVICE, NULL), 0);
    assert_int_equal(store_set_observed(store, 4, true), 0);
    assert_int_equal(row_set_state(store, 5, STATE_HOST_GROWN, REASON_POLICY, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    expect_words(fixture, "<b>1</b> stalled");
    expect_words(fixture, "<b>2</b> to look at");
    expect_words(fixture, "<b>1</b> growing");
    expect_words(fixture, "<b>1</b> not in use or only observed");
    expect_words(fixture, "<h2>Stalled</h2>\n<section>\n<details open><summary><b>pv-0</b>");
    expect_words(fixture, "<h2>To look at</h2>\n<section>\n<details open><summary><b>pv-2</b>");
}

static void the_page_is_short(void **state)
{
    cleanup(buffer_done) struct buffer reply = {0};

    add_volumes(*state, 4000);
    expect_words(*state, "and 3800 more");
    reply = ask(*state, "GET", "/");
    assert_true(reply.length < 256 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_text_is_escaped),
        TEST(numbers_are_for_people),
        TEST(an_empty_node),
        TEST(pod_and_claim_are_named),
        TEST(stalled_volumes_come_first_and_are_explained),
        TEST(the_page_counts_stalled_as_the_view_does),
        TEST(the_page_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
