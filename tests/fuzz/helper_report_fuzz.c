/* SPDX-License-Identifier: Apache-2.0 */
/* helper_report_fuzz.c - the helper's output, as a hostile guest may make it up.
 *
 * What is taken from it is bounded, its texts can be shown, and each volume gets one verdict.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"
#include "reconciler/helper/helper.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void expect_text(const char *text)
{
    must(text_is_utf8(text, strlen(text)) && !strpbrk(text, "\n\r\x1b"));
}

static void judge_all(const struct helper_report *report)
{
    struct helper_verdict verdict;

    for (unsigned grew = 0; grew < 2; grew++) {
        helper_judge(report->volume, report->volumes, 1 << 20, grew, &verdict);
        expect_text(verdict.text);
        must(verdict.reason == REASON_NONE || verdict.text[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct helper_report report;
    static char texts[HELPER_VOLUMES][24];
    const char *path[HELPER_VOLUMES];
    struct error error = {0};

    for (unsigned i = 0; i < HELPER_VOLUMES; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "/vol/%u", i);
        path[i] = texts[i];
    }
    for (unsigned paths = 1; paths <= HELPER_VOLUMES; paths *= 2) {
        if (helper_report_parse((const char *)data, size, path, paths, &report, &error) < 0) {
            expect_text(error.text);
            continue;
        }
        must(report.volumes == paths);
        for (unsigned i = 0; i < paths; i++) {
            expect_text(report.volume[i].text);
            expect_text(report.volume[i].layer);
            expect_text(report.volume[i].stats.condition);
        }
        judge_all(&report);
    }
    return 0;
}
