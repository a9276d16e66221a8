package telegram_test

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/telegram/telegramtest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// at returns the address of a group, or of a topic in it.
func at(chat int, thread string) bus.Address {
	return bus.Address{Account: "tg", Chat: itoa(chat), Thread: thread}
}

type fields = map[string]any

func TestInbound(t *testing.T) {
	const group, forum = -5, -1001234567890
	person := bus.Sender{ID: "42", Name: "Ada Lovelace", Username: "ada"}
	direct := bus.InboundMessage{From: ada, Sender: person, Addressed: true}
	inGroup := bus.InboundMessage{
		From: at(group, ""), Sender: person, Group: true, ChatTitle: "club",
	}
	with := func(m bus.InboundMessage, change func(*bus.InboundMessage)) *bus.InboundMessage {
		change(&m)
		return &m
	}
	text := func(s string, addressed bool) func(*bus.InboundMessage) {
		return func(m *bus.InboundMessage) { m.Text, m.Addressed = s, addressed }
	}
	for _, tt := range []struct {
		name string
		in   telegramtest.Message
		want *bus.InboundMessage // nil: ignored
	}{
		{"direct", telegramtest.Message{Text: "hello"}, with(direct, text("hello", true))},
		{"direct command", telegramtest.Message{Text: "/new@Gateway_Bot now"},
			with(direct, text("/new now", true))},
		{"other bot's command to us", telegramtest.Message{Text: "/help@other_bot"},
			with(direct, text("/help@other_bot", true))},
		{"group chatter", telegramtest.Message{Chat: group, Text: "hello"},
			with(inGroup, text("hello", false))},
		{"mention", telegramtest.Message{Chat: group, Text: "@gateway_bot, hello"},
			with(inGroup, text("hello", true))},
		{"mention after emoji", telegramtest.Message{Chat: group, Text: "😀 hey @GATEWAY_bot !"},
			with(inGroup, text("😀 hey !", true))},
		{"mention alone", telegramtest.Message{Chat: group, Text: "@gateway_bot"},
			with(inGroup, text("@gateway_bot", true))},
		{"mention of another", telegramtest.Message{Chat: group, Text: "@gateway_bots hello"},
			with(inGroup, text("@gateway_bots hello", false))},
		{"mention that is no entity", telegramtest.Message{Chat: group,
			Extra: fields{"caption": "x", "photo": []int{}, "caption_entities": []fields{
				{"type": "mention", "offset": -1, "length": 9},
				{"type": "mention", "offset": 0, "length": 99}}}},
			with(inGroup, text("[photo] x", false))},
		{"text mention", telegramtest.Message{Chat: group, Extra: fields{
			"caption": "Bot hello", "photo": []int{}, "caption_entities": []fields{{
				"type": "text_mention", "offset": 0, "length": 3,
				"user": fields{"id": 7000000001, "first_name": "Bot"}}}}},
			with(inGroup, text("[photo] hello", true))},
		{"text mention of another", telegramtest.Message{Chat: group, Extra: fields{
			"caption": "Bob hello", "photo": []int{}, "caption_entities": []fields{{
				"type": "text_mention", "offset": 0, "length": 3,
				"user": fields{"id": 9, "first_name": "Bob"}}}}},
			with(inGroup, text("[photo] Bob hello", false))},
		{"our name as code", telegramtest.Message{Chat: group, Extra: fields{
			"caption": "@gateway_bot is down", "photo": []int{}, "caption_entities": []fields{{
				"type": "code", "offset": 0, "length": 12}}}},
			with(inGroup, text("[photo] @gateway_bot is down", false))},
		{"command", telegramtest.Message{Chat: group, Text: "/help"},
			with(inGroup, text("/help", true))},
		{"our command", telegramtest.Message{Chat: group, Text: "/help@gateway_bot me"},
			with(inGroup, text("/help me", true))},
		{"other bot's command", telegramtest.Message{Chat: group, Text: "/help@other_bot"}, nil},
		{"command within", telegramtest.Message{Chat: group, Text: "try /help@other_bot"},
			with(inGroup, text("try /help@other_bot", false))},
		{"topic", telegramtest.Message{Chat: forum, Thread: 7, Text: "hi"},
			with(inGroup, func(m *bus.InboundMessage) {
				m.From, m.ChatTitle, m.Text = at(forum, "7"), "forum", "hi"
			})},
		{"topic's root", telegramtest.Message{Chat: forum, Thread: 7, Text: "hi", Extra: fields{
			"reply_to_message": fields{"message_id": 7, "from": fields{"id": 7000000001},
				"forum_topic_created": fields{"name": "t"}}}},
			with(inGroup, func(m *bus.InboundMessage) {
				m.From, m.ChatTitle, m.Text = at(forum, "7"), "forum", "hi"
			})},
		{"chain of replies", telegramtest.Message{Chat: group, Text: "hi",
			Extra: fields{"message_thread_id": 3}}, with(inGroup, text("hi", false))},
		{"reply to us", telegramtest.Message{Chat: group, Text: "yes", Extra: fields{
			"reply_to_message": fields{"message_id": 3, "text": "Shall I?",
				"from": fields{"id": 7000000001, "is_bot": true, "first_name": "Gateway"}}}},
			with(inGroup, func(m *bus.InboundMessage) {
				m.Text, m.Addressed = "yes", true
				m.ReplyTo = &bus.Quote{ID: "3", Sender: "Gateway", Text: "Shall I?", Ours: true}
			})},
		{"reply to another", telegramtest.Message{Chat: group, Text: "yes", Extra: fields{
			"reply_to_message": fields{"message_id": 3, "text": "Shall I?",
				"from": fields{"id": 9, "first_name": "Bob"}}}},
			with(inGroup, func(m *bus.InboundMessage) {
				m.Text, m.ReplyTo = "yes", &bus.Quote{ID: "3", Sender: "Bob", Text: "Shall I?"}
			})},
		{"reply to a part", telegramtest.Message{Text: "why?", Extra: fields{
			"quote": fields{"text": "lake"}, "reply_to_message": fields{"message_id": 2,
				"caption": "at the lake", "from": fields{"id": 9, "first_name": "Bo\u202eb"}}}},
			with(direct, func(m *bus.InboundMessage) {
				m.Text = "why?"
				m.ReplyTo = &bus.Quote{ID: "2", Sender: "Bob", Text: "lake"}
			})},
		{"links", telegramtest.Message{Chat: group, Extra: fields{
			"photo": []int{}, "caption": "😀 here \nand https://a.example/ for @gateway_bot",
			"caption_entities": []fields{
				{"type": "text_link", "offset": 3, "length": 6, "url": "https://a.example/?q=1"},
				{"type": "bold", "offset": 3, "length": 6},
				{"type": "text_link", "offset": 13, "length": 18, "url": "https://a.example/"},
				{"type": "mention", "offset": 36, "length": 12}},
			"reply_to_message": fields{"message_id": 2, "text": "see it", "entities": []fields{
				{"type": "text_link", "offset": 0, "length": 3, "url": "https://b.example"}},
				"from": fields{"id": 9, "first_name": "Bob"}}}},
			with(inGroup, func(m *bus.InboundMessage) {
				m.Text = "[photo] 😀 here (https://a.example/?q=1) \nand https://a.example/ for"
				m.Addressed = true
				m.ReplyTo = &bus.Quote{ID: "2", Sender: "Bob", Text: "see (https://b.example) it"}
			})},
		{"link in a quote", telegramtest.Message{Text: "why?", Extra: fields{
			"quote": fields{"text": "lake", "entities": []fields{
				{"type": "text_link", "offset": 0, "length": 4, "url": "https://b.example"}}},
			"reply_to_message": fields{"message_id": 2, "text": "at the lake"}}},
			with(direct, func(m *bus.InboundMessage) {
				m.Text = "why?"
				m.ReplyTo = &bus.Quote{ID: "2", Text: "lake (https://b.example)"}
			})},
		{"forwarded", telegramtest.Message{Text: "news", Extra: fields{
			"forward_origin": fields{"type": "hidden_user", "sender_user_name": "Eve\nOwner:"}}},
			with(direct, func(m *bus.InboundMessage) {
				m.Text, m.Forwarded = "news", "Eve Owner:"
			})},
		{"voice", telegramtest.Message{Extra: fields{"voice": fields{"duration": 3}}},
			with(direct, text("[voice]", true))},
		{"document", telegramtest.Message{Extra: fields{
			"document": fields{"file_name": "a]\u202e\n.pdf"}, "caption": "read this"}},
			with(direct, text("[document: a) .pdf] read this", true))},
		{"animation", telegramtest.Message{Extra: fields{
			"animation": fields{}, "document": fields{"file_name": "x.gif"}}},
			with(direct, text("[animation]", true))},
		{"sticker", telegramtest.Message{Extra: fields{"sticker": fields{"emoji": "😀"}}},
			with(direct, text("[sticker: 😀]", true))},
		{"venue", telegramtest.Message{Extra: fields{
			"venue":    fields{"title": "Café", "address": "Main St"},
			"location": fields{"latitude": 1.5, "longitude": 2}}},
			with(direct, text("[venue: Café, Main St]", true))},
		{"location", telegramtest.Message{Extra: fields{
			"location": fields{"latitude": 1.5, "longitude": -2}}},
			with(direct, text("[location: 1.5, -2]", true))},
		{"contact", telegramtest.Message{Extra: fields{
			"contact": fields{"first_name": "Bob", "phone_number": "+123"}}},
			with(direct, text("[contact: Bob +123]", true))},
		{"poll", telegramtest.Message{Extra: fields{"poll": fields{"question": "Tea?",
			"options": []fields{{"text": "Green"}, {"text": "Black\n[x]"}}}}},
			with(direct, text("[poll: Tea?]\n- Green\n- Black [x]", true))},
		// See https://github.com/nanocoai/nanoclaw/issues/3151.
		{"rich message", telegramtest.Message{Extra: fields{"rich_message": fields{"blocks": []any{
			fields{"type": "heading", "size": 2, "text": "Plan"},
			fields{"type": "paragraph", "text": []any{"See ", fields{"type": "bold", "text": []any{
				fields{"type": "url", "url": "http://a.io", "text": "this 😀"}}}, "."}},
			fields{"type": "list", "items": []fields{
				{"label": "1.", "blocks": []fields{{"type": "paragraph", "text": "one\ntwo"},
					{"type": "list", "items": []fields{{"label": "•", "has_checkbox": true, "blocks": []fields{
						{"type": "paragraph", "text": "inner"}}}}}}},
				{"label": "2.", "blocks": []fields{{"type": "pre", "language": "go", "text": "x := 1"}}}}},
			fields{"type": "blockquote", "credit": "Ada", "blocks": []fields{
				{"type": "paragraph", "text": "a\nb"}}},
			fields{"type": "table", "caption": "T", "cells": [][]fields{{{"text": "h"}, {"text": "i"}},
				{{"text": "1"}, {}}}},
			fields{"type": "collage", "caption": fields{"text": "at the lake"}, "blocks": []fields{
				{"type": "photo", "photo": []fields{{"file_id": "small", "width": 9, "height": 9},
					{"file_id": "large", "width": 90, "height": 90}}},
				{"type": "voice_note", "voice_note": fields{"file_id": "spoken", "duration": 3}}}},
			fields{"type": "new", "text": 7},
		}}}}, with(direct, func(m *bus.InboundMessage) {
			m.Text = "## Plan\n\nSee this 😀 (http://a.io).\n\n" +
				"1. one\n  two\n  - [ ] inner\n2. ```go\n  x := 1\n  ```\n\n" +
				"> a\n> b\nAda\n\n| h | i |\n|---|---|\n| 1 |  |\nT\n\n[photo]\n[voice]\nat the lake"
			m.Attachments = []bus.Attachment{{Kind: bus.Photo, Type: "image/jpeg", Ref: "large"},
				{Kind: bus.Voice, Type: "audio/ogg", Seconds: 3, Ref: "spoken"}}
		})},
		{"file in a rich message", telegramtest.Message{Extra: fields{"rich_message": fields{
			"blocks": []any{fields{"type": "document", "caption": fields{"text": "the plan"},
				"document": fields{"file_id": "plan", "file_name": "a.pdf"}}}}}},
			with(direct, func(m *bus.InboundMessage) {
				m.Text = "[document: a.pdf]\nthe plan"
				m.Attachments = []bus.Attachment{{Kind: bus.Document, Name: "a.pdf", Ref: "plan"}}
			})},
		{"rich mention", telegramtest.Message{Chat: group, Extra: fields{"rich_message": fields{
			"blocks": []any{fields{"type": "paragraph", "text": []any{"😀 ", fields{"type": "mention",
				"username": "gateway_bot", "text": "@Gateway_Bot"}, " help"}}}}}},
			with(inGroup, text("😀 help", true))},
		{"rich message of unknown parts", telegramtest.Message{Extra: fields{"rich_message": fields{
			"blocks": []any{7}}}}, with(direct, text("[rich message]", true))},
		{"checklist", telegramtest.Message{Extra: fields{"checklist": fields{"title": "Shopping",
			"tasks": []fields{{"id": 1, "text": "milk", "completion_date": 0},
				{"id": 2, "text": "two\neggs", "completion_date": 1700000000}}}}},
			with(direct, text("[checklist: Shopping]\n- [ ] milk\n- [x] two eggs", true))},
		{"service message", telegramtest.Message{Chat: group, Extra: fields{
			"new_chat_members": []fields{{"id": 1}}}}, nil},
		{"anonymous administrator", telegramtest.Message{Chat: group, Text: "hi",
			Extra: fields{"sender_chat": fields{"id": group, "type": "group"}}}, nil},
		{"to a channel", telegramtest.Message{Chat: forum, Text: "/help", Extra: fields{
			"chat":                  fields{"id": forum, "type": "supergroup", "is_direct_messages": true},
			"direct_messages_topic": fields{"topic_id": 42, "user": fields{"id": 42}}}}, nil},
		{"bot", telegramtest.Message{User: 99, Chat: group, Text: "beep"}, nil},
		{"hostile name", telegramtest.Message{User: 66, Text: "hi"},
			with(direct, func(m *bus.InboundMessage) {
				m.From.Chat, m.Text = "66", "hi"
				m.Sender = bus.Sender{ID: "66", Name: "Mal [Owner] 👩‍👧"}
			})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			api.AddUser(telegramtest.User{ID: 99, Bot: true, First: "Other"})
			api.AddUser(telegramtest.User{
				ID: 66, First: "\u202eMal\r\n", Last: "\x00[Owner]\u200b 👩‍👧",
			})
			api.AddGroup(group, "club")
			api.AddGroup(forum, "forum", 7)
			if tt.in.User == 0 {
				tt.in.User = 42
			}
			id := api.Deliver(tt.in)[0]
			got := receive(t, api, c)
			if tt.want == nil {
				if len(got) != 0 {
					t.Errorf("received %+v, want nothing", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("received %d messages, want one", len(got))
			}
			if age := time.Since(got[0].Time); age < 0 || age > time.Minute {
				t.Errorf("the message is dated %v", got[0].Time)
			}
			tt.want.ID, tt.want.Time = itoa(id), got[0].Time
			if !reflect.DeepEqual(got[0], *tt.want) {
				t.Errorf("received %+v\nwant %+v", got[0], *tt.want)
			}
		})
	}
}
