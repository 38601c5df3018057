"""Files of weights of encoders and aligner: what does not fit is refused in one line that names the weight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe.multimodal import Encoders

torch = pytest.importorskip("torch")
from podwright.train.multimodal.networks import aligner, encoders  # noqa: E402

DIMS = {"text": 12, "image": 8, "audio": 6}


@pytest.fixture(scope="module")
def cnn14() -> dict[str, Any]:
    return dict(encoders.Cnn14().state_dict())


def refusal(load: Callable[[], object]) -> str:
    with pytest.raises(UserError) as e:
        load()
    assert "\n" not in str(e.value)
    return str(e.value)


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda w: w | {"fc1.weight": torch.zeros(100, 2048)}, "fc1.weight is [100, 2048] and not [2048, 2048]; give"),
        (lambda w: w | {"fc1.weight": 3}, "has no fc1.weight; give the weights of this encoder"),
        (lambda w: w | {"fc1.bias": torch.full((2048,), torch.nan)}, "fc1.bias in"),
        (lambda w: list(w.values())[:1], "cannot be read as weights by name"),
        (lambda w: torch.zeros(3), "cannot be read as weights by name"),
        (lambda w: {"model": [1]}, "cannot be read as weights by name"),
        (lambda w: {3: torch.zeros(3)}, "has no "),
    ],
)
def test_weights_that_do_not_fit_cnn14_are_refused(tmp_path: Path, cnn14: Any, changed: Any, words: str) -> None:
    path = tmp_path / "cnn14.pth"
    torch.save(changed(cnn14), path)
    section = Encoders(image="tiny", audio="cnn14", audio_weights=str(path))
    assert words in refusal(lambda: encoders.audio_encoder(section))


def test_weights_of_cnn14_may_lie_under_a_key_beside_other_things(tmp_path: Path, cnn14: Any) -> None:
    path = tmp_path / "cnn14.pth"
    torch.save({"iteration": 3, "model": cnn14 | {"fc_audioset.weight": torch.zeros(2, 2), "x": 3}}, path)
    ear = encoders.audio_encoder(Encoders(image="tiny", audio="cnn14", audio_weights=str(path)))
    assert torch.equal(ear.body.fc1.weight, cnn14["fc1.weight"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda w: {name: 0 for name in w}, "has no weights under projection_heads."),
        (lambda w: {3: 4}, "has no weights under projection_heads."),
        (lambda w: [1], "cannot be read as weights by name"),
        (lambda w: {"state_dict": [1]}, "cannot be read as weights by name"),
        (
            lambda w: w | {"postprocessors.image.1.logit_scale": torch.zeros(3)},
            "image_scaling.logit_scale is [3] and not []; change",
        ),
        (lambda w: w | {"projection_heads.image_head.ln.bias": torch.zeros(2)}, "ln.bias is [2] and not [8]; change"),
    ],
)
def test_an_aligner_that_does_not_fit_is_refused(tmp_path: Path, changed: Any, words: str) -> None:
    path = tmp_path / "aligner.pt"
    heads = aligner.Aligner(DIMS, 4, scaled=False).state_dict()
    torch.save(changed({name: value for name, value in heads.items() if name.startswith(aligner.PREFIX)}), path)
    assert words in refusal(lambda: aligner.load(str(path), DIMS, 4, scaled=True))


def test_a_scale_may_be_stored_as_a_list_of_one_number(tmp_path: Path) -> None:
    weights = aligner.Aligner(DIMS, 4).state_dict() | {"postprocessors.image_scaling.logit_scale": torch.tensor([0.5])}
    torch.save(weights, tmp_path / "aligner.pt")
    loaded = aligner.load(str(tmp_path / "aligner.pt"), DIMS, 4)
    assert loaded.scale("image").item() == pytest.approx(1.6487, rel=1e-4)


def test_a_directory_in_the_place_of_weights_is_called_that(tmp_path: Path) -> None:
    section = Encoders(image="tiny", audio="cnn14", audio_weights=str(tmp_path))
    for load in (lambda: aligner.load(str(tmp_path), DIMS, 4), lambda: encoders.audio_encoder(section)):
        assert f"={tmp_path} is a directory, not a file; name a file in it" in refusal(load)


def test_a_head_that_is_no_matrix_is_refused(tmp_path: Path) -> None:
    torch.save(
        aligner.Aligner({"image": 8}, 4).state_dict() | {"projection_heads.image_head.fc.weight": torch.zeros(3)},
        tmp_path / "aligner.pt",
    )
    assert "fc.weight is [3] and not [4, 8]" in refusal(
        lambda: aligner.load(str(tmp_path / "aligner.pt"), {"image": 8}, 4, ())
    )
