"""Convolutional image classifier without branches: VGG (Simonyan & Zisserman 2015), table 1."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.families import Model, images
from graphs.foundation.errors import InputError

CONFIGURATIONS = {"vgg-19": "layers=19,image=224,batch=32"}
PARAMETERS = {"vgg-19": 143.7e6}  # 144 million in table 2; counted in torchvision's documentation
TRAIN = (
    "layers=19,image=64,batch=32", "layers=11,image=224,batch=64", "layers=13,image=160,batch=64",
    "layers=16,image=128,batch=128", "layers=16,image=224,batch=32", "layers=19,image=160,batch=32",
)  # fmt: skip
TEST = (
    "layers=13,image=224,batch=64", "layers=16,image=192,batch=96", "layers=19,image=224,batch=64",
)  # fmt: skip
PLANS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # convolutions a stage
WIDTHS = (64, 128, 256, 512, 512)
CLASSES = 1000
SMALLEST_IMAGE = 32  # five poolings halve it


def build(*, layers: int = 19, image: int = 224, batch: int = 32) -> Model:
    """The model and its example inputs: images (batch, 3, image, image) and labels (batch,)."""
    if layers not in PLANS:
        raise InputError(f"vgg has no {layers} layers; there are: {', '.join(map(str, PLANS))}")
    if image < SMALLEST_IMAGE:
        raise InputError(f"vgg: expected image to be at least {SMALLEST_IMAGE}, got {image}")
    with torch.device("meta"):
        return Vgg(PLANS[layers], image), images(batch, image)


class Vgg(nn.Module):
    """Convolutions 3 x 3, halved after each stage, and three fully connected layers."""

    def __init__(self, plan: tuple[int, ...], image: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for count, width in zip(plan, WIDTHS, strict=True):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        flat = channels * (image // 32) ** 2
        self.classifier = nn.Sequential(
            nn.Linear(flat, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, CLASSES)
        )

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch."""
        return F.cross_entropy(self.classifier(self.features(images).flatten(1)), labels)
