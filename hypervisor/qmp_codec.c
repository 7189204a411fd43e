/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_codec.c - finds the end of an object, and distinguishes the kinds of messages.
 *
 * The scanner only finds where an object ends; json_read() judges whether it is valid JSON. The
 * scanner remembers where it stopped, so a message that arrives byte by byte costs no more than one
 * that arrives whole. It never reads beyond QMP_MESSAGE_BYTES.
 */
#include "hypervisor/qmp_codec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* True when `byte` closes the object. */
static bool scan_byte(struct qmp_decoder *decoder, char byte)
{
    if (decoder->in_string) {
        if (decoder->escaped)
            decoder->escaped = false;
        else if (byte == '\\')
            decoder->escaped = true;
        else if (byte == '"')
            decoder->in_string = false;
        return false;
    }
    if (byte == '"')
        decoder->in_string = true;
    else if (byte == '{' || byte == '[')
        decoder->depth++;
    else if (byte == '}' || byte == ']')
        return --decoder->depth == 0;
    return false;
}

/* Skips bytes that have no meaning for the scanner, inside a string or outside. */
static void scan_plain(struct qmp_decoder *decoder, const struct buffer *input)
{
    static const bool means[256] = {
        ['"'] = true, ['\\'] = true, ['{'] = true, ['['] = true, ['}'] = true, [']'] = true};
    const unsigned char *data = (const unsigned char *)input->data;
    size_t at = decoder->scanned;

    while (at < input->length && !means[data[at]])
        at++;
    decoder->scanned = at;
}

/* The length of the object at the front of the input; 0 if its end has not arrived. */
static size_t scan_object(struct qmp_decoder *decoder, const struct buffer *input)
{
    while (decoder->scanned < input->length) {
        if (scan_byte(decoder, input->data[decoder->scanned++]))
            return decoder->scanned;
        if (!decoder->escaped)
            scan_plain(decoder, input);
    }
    return 0;
}

static void skip_space(struct buffer *input)
{
    size_t length = 0;

    while (length < input->length && is_space(input->data[length]))
        length++;
    buffer_consume(input, length);
}

/* The position after the string that begins at `at`. */
static size_t skip_string(const char *text, size_t length, size_t at)
{
    for (at++; at < length && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at + 1;
}

/* Whether the object itself has a member of this name, written without escapes. */
static bool has_member(const char *text, size_t length, const char *quoted)
{
    size_t depth = 0, at = 0, name = strlen(quoted);
    char before = '\0'; /* the last character that is not white space */

    while (at < length) {
        char byte = text[at];

        if (byte == '"') {
            if (depth == 1 && before != ':' && length - at > name &&
                memcmp(text + at, quoted, name) == 0)
                return true;
            at = skip_string(text, length, at);
            before = byte;
            continue;
        }
        depth += byte == '{' || byte == '[';
        depth -= byte == '}' || byte == ']';
        before = is_space(byte) ? before : byte;
        at++;
    }
    return false;
}

/* Almost no answer contains the word, so few are scanned for the member. */
static bool is_event(const char *text, size_t length)
{
    static const char quoted[] = "\"event\"";

    return memmem(text, length, quoted, strlen(quoted)) && has_member(text, length, quoted);
}

static void classify_error(struct qmp_message *message, const cJSON *failure)
{
    const char *name = json_string(failure, "class");
    const char *text = json_string(failure, "desc");

    message->kind = QMP_ERROR;
    message->error_class = name ? name : "";
    message->error_text = text ? text : "";
}

static void classify(struct qmp_message *message)
{
    const cJSON *failure = json_member(message->object, "error");

    message->id = json_string(message->object, "id");
    message->value = json_member(message->object, "return");
    if (json_member(message->object, "event"))
        message->kind = QMP_EVENT;
    else if (failure)
        classify_error(message, failure);
    else if (message->value)
        message->kind = QMP_RETURN;
    else if (json_member(message->object, "QMP"))
        message->kind = QMP_GREETING;
    else
        message->kind = QMP_OTHER;
}

int qmp_decode(struct qmp_decoder *decoder, struct buffer *input, struct qmp_message *ret_message,
               struct error *error)
{
    struct qmp_message message = {.kind = QMP_OTHER};
    size_t length;
    int r;

    if (!decoder->scanned)
        skip_space(input);
    if (!input->length)
        return QMP_INCOMPLETE;
    if (input->data[0] != '{')
        return error_set(error, -EBADMSG, "the monitor sent something that is no JSON object");
    length = scan_object(decoder, input);
    if (length > QMP_MESSAGE_BYTES || (!length && input->length >= QMP_MESSAGE_BYTES))
        return error_set(error, -EMSGSIZE, "the monitor sent a message beyond %d bytes",
                         QMP_MESSAGE_BYTES);
    if (!length)
        return QMP_INCOMPLETE;
    message.kind = is_event(input->data, length) ? QMP_EVENT : QMP_OTHER;
    if (message.kind != QMP_EVENT) {
        r = json_read(input->data, length, JSON_LIMITS_QMP, "QMP return error event id",
                      &message.object, error);
        if (r != FILE_READ)
            return r < 0 ? r : -EBADMSG;
        classify(&message);
    }
    buffer_consume(input, length);
    *decoder = (struct qmp_decoder){0};
    *ret_message = message;
    return QMP_DECODED;
}

void qmp_read_version(const struct qmp_message *greeting, char *ret_version, size_t size)
{
    const cJSON *qmp = json_member(greeting->object, "QMP");
    const cJSON *version = json_member(json_member(qmp, "version"), "qemu");
    uint64_t major, minor, micro;

    ret_version[0] = '\0';
    if (json_number(version, "major", &major) == 0 && json_number(version, "minor", &minor) == 0 &&
        json_number(version, "micro", &micro) == 0)
        (void)snprintf(ret_version, size, "%" PRIu64 ".%" PRIu64 ".%" PRIu64, major, minor, micro);
}

bool qmp_refuse_greeting(const struct buffer *input, struct error *error)
{
    bool is_human = input->data[0] == 'Q';

    (void)error_set(error, 0,
                    is_human ? "this is a human monitor (HMP), which crustd does not use: "
                               "crust-qemu adds one that it uses"
                             : "what listens there is no QEMU monitor");
    return is_human;
}

void qmp_message_done(struct qmp_message *message)
{
    cJSON_Delete(message->object);
    *message = (struct qmp_message){.kind = QMP_OTHER};
}

int qmp_encode(struct buffer *output, const char *command, const char *arguments, const char *id)
{
    return buffer_append_format(output, "{\"execute\":\"%s\"%s%s,\"id\":\"%s\"}\n", command,
                                arguments ? ",\"arguments\":" : "", arguments ? arguments : "", id);
}
