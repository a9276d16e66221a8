package agent

import (
	"context"

	"gateway/agent/llm"
	"gateway/agent/prompt"
)

// withImages returns messages with the images that the model shall see: the newest ones. The
// others stay without their data, and are mentioned.
func (t *turn) withImages(ctx context.Context, messages []llm.Message) []llm.Message {
	left := prompt.MaxImages
	if t.noImages || t.settings.NoImages || t.env.Attachments.Media == nil {
		left = 0
	}
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		m := &messages[i]
		if len(m.Images) == 0 {
			continue
		}
		images := make([]llm.Image, len(m.Images)) // the transcript's are shared
		copy(images, m.Images)
		for j := len(images) - 1; j >= 0 && left > 0; j-- {
			images[j] = t.image(ctx, images[j])
			left--
		}
		m.Images = images
	}
	return messages
}

// image returns im with its data, if that is possible.
func (t *turn) image(ctx context.Context, im llm.Image) llm.Image {
	if known, ok := t.images[im.Path]; ok {
		return known
	}
	im, err := t.env.Attachments.Image(ctx, t.Address, im)
	if err != nil {
		t.logger().InfoContext(ctx, "image not shown to the model", "err", err)
	}
	if t.images == nil {
		t.images = make(map[string]llm.Image)
	}
	t.images[im.Path] = im
	return im
}
