package criclient

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageStatus describes one image. Where the runtime does not have it, the
// response has no image and there is no error.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (resp *runtimeapi.ImageStatusResponse, err error) {
	err = c.do(ctx, "ImageStatus", "ask status of image", image.GetImage(), c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// PullImage pulls an image and returns its ID in the runtime. Only ctx bounds
// it: how long a pull may take depends on the image and the network.
func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	var ref string
	err := c.do(ctx, "PullImage", "pull image", image.GetImage(), 0, func(ctx context.Context) error {
		resp, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandboxConfig})
		ref = resp.GetImageRef()
		return err
	})
	if err == nil && ref == "" {
		err = malformed("pull image", image.GetImage(), "no image reference")
	}
	return ref, err
}

// RemoveImage removes an image with all its tags. One that is gone is removed.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return unlessGone(c.do(ctx, "RemoveImage", "remove image", image.GetImage(), c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image})
		return err
	}))
}

// ImageFsInfo describes the file systems that images and containers are on.
func (c *Client) ImageFsInfo(ctx context.Context) (resp *runtimeapi.ImageFsInfoResponse, err error) {
	err = c.do(ctx, "ImageFsInfo", "ask for image file systems", "", c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}
