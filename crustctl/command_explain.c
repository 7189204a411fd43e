/* command_explain.c - what is known, what is missing, and what to do about it.
 *
 * The state and its reason are explained from the table; the facts are this volume's own. An
 * unknown word (a newer daemon) is shown without an explanation.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/dossier.h"
#include "crustctl/facts.h"
#include "crustctl/row.h"
#include "lib/advice.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { WIDEST = 100 }; /* longer lines of prose are hard to read */

/* Everything an answer consists of, for text and JSON alike. */
struct answer {
    const cJSON *volume;
    struct advice advice;
    struct facts facts;
};

static int print_heading(const struct answer *answer, struct buffer *out)
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer state = BUFFER_INIT(0);
    int result = row_volume_name(answer->volume, &name);

    if (result == 0)
        result = row_state(answer->volume, &state);
    if (result == 0)
        result = buffer_append_format(out, "Volume %" PRIu64 ", ",
                                      row_number(answer->volume, "volume_id", NULL));
    if (result == 0)
        result = display_append(out, buffer_text(&name));
    if (result == 0)
        result = buffer_append_text(out, ": ");
    if (result == 0)
        result = display_append(out, buffer_text(&state));
    return result == 0 ? buffer_append_text(out, "\n\n") : result;
}

static int print_meaning(const struct answer *answer, unsigned width, struct buffer *out)
{
    int result = 0;

    if (answer->advice.state)
        result = display_append_wrapped(out, answer->advice.state->meaning, NULL, 0, width);
    if (result == 0 && answer->advice.reason)
        result = display_append_wrapped(out, answer->advice.reason->meaning, NULL, 0, width);
    if (!answer->advice.state)
        result = buffer_append_text(out, "This crustctl does not know this state.\n");
    else if (result == 0 && !answer->advice.reason &&
             strcmp(row_reason(answer->volume), "none") != 0)
        result = buffer_append_text(out, "This crustctl does not know this reason.\n");
    return result;
}

static int print_item(const char *text, unsigned width, struct buffer *out)
{
    return display_append_wrapped(out, text, "  - ", 4, width);
}

static int print_known(const struct answer *answer, unsigned width, struct buffer *out)
{
    int result = buffer_append_text(out, "\nWhat is known\n");

    for (unsigned i = 0; result == 0 && i < answer->facts.count; i++)
        result = print_item(answer->facts.fact[i], width, out);
    return result;
}

static int print_advice(const struct answer *answer, unsigned width, struct buffer *out)
{
    const char *missing = answer->advice.missing;
    int result = 0;

    if (missing)
        result = buffer_append_text(out, "\nWhat is missing\n");
    if (result == 0 && missing)
        result = print_item(missing, width, out);
    if (result == 0 && answer->advice.remedies > 0)
        result = buffer_append_text(out, "\nWhat to do\n");
    for (unsigned i = 0; result == 0 && i < answer->advice.remedies; i++)
        result = print_item(answer->advice.remedy[i], width, out);
    return result;
}

static int print_text(const struct answer *answer, unsigned width, struct buffer *out)
{
    int result = print_heading(answer, out);

    if (width > WIDEST)
        width = WIDEST;
    if (result == 0)
        result = print_meaning(answer, width, out);
    if (result == 0 && answer->facts.count > 0)
        result = print_known(answer, width, out);
    return result == 0 ? print_advice(answer, width, out) : result;
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

/* An older crustd's row may lack a column. */
static void add_column(cJSON *object, const cJSON *row, const char *name)
{
    const cJSON *value = json_member(row, name);

    if (value)
        cJSON_AddItemToObject(object, name, cJSON_Duplicate(value, true));
    else
        cJSON_AddNullToObject(object, name);
}

static int print_json(const struct answer *answer, struct buffer *out)
{
    static const char *const columns[] = {"volume_id", "target_path", "state",
                                          "reason",    "resizable",   "resizable_reason"};
    cleanup(json_deletep) cJSON *object = cJSON_CreateObject();
    cJSON *known, *remedies;

    for (size_t i = 0; i < array_length(columns); i++)
        add_column(object, answer->volume, columns[i]);
    add_text(object, "state_meaning", answer->advice.state ? answer->advice.state->meaning : NULL);
    add_text(object, "reason_meaning",
             answer->advice.reason ? answer->advice.reason->meaning : NULL);
    add_text(object, "resizable_meaning",
             answer->advice.resizable ? answer->advice.resizable->meaning : NULL);
    known = cJSON_AddArrayToObject(object, "known");
    for (unsigned i = 0; i < answer->facts.count; i++)
        cJSON_AddItemToArray(known, cJSON_CreateString(answer->facts.fact[i]));
    add_text(object, "missing", answer->advice.missing);
    remedies = cJSON_AddArrayToObject(object, "remedies");
    for (unsigned i = 0; i < answer->advice.remedies; i++)
        cJSON_AddItemToArray(remedies, cJSON_CreateString(answer->advice.remedy[i]));
    return remedies ? row_print_json(object, out) : -ENOMEM;
}

int command_explain(struct session *session)
{
    cleanup(dossier_done) struct dossier dossier = {0};
    struct answer answer = {0};
    int code = dossier_collect(session, &dossier);

    if (code != 0)
        return code;
    answer.volume = dossier.volume;
    advice_collect(dossier.volume, dossier.layers, &answer.advice);
    facts_collect(&dossier, source_config(session->source), &answer.facts);
    code = session->options->json ? print_json(&answer, &session->out)
                                  : print_text(&answer, session->width, &session->out);
    return code == 0 ? EXIT_DONE : session_fail(code, NULL);
}
